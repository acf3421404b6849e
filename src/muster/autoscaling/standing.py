"""A pool's standing with its provider: what outcomes of creations mean for the next ones
(design: Autoscaling).

Each kind of outcome has a scope and a time: want of quota closes all pools that share it, want of
stock only the pool, a provider that is throttled is asked more slowly and thought no worse of.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from muster.core.reasons import Reason
from muster.core.reasons.of_pools import (
    PoolBackingOff,
    PoolBadRequest,
    PoolCredentials,
    PoolOutOfQuota,
    PoolStockedOut,
    PoolThrottled,
)

MAX_TOLD = 300
"""Characters of the provider's own words that are kept."""


class CreateOutcome(StrEnum):
    """The outcome of a wish for a slice."""

    CREATED = "created"
    STOCK_OUT = "stock-out"
    QUOTA = "quota"
    THROTTLED = "throttled"
    CREDENTIALS = "credentials"
    BAD_REQUEST = "bad request"
    UNKNOWN = "unknown"
    NOT_BOOTED = "not booted"  # it was made, and its machines never joined


class OutcomeScope(StrEnum):
    """The pools that an outcome closes."""

    POOL = "pool"
    QUOTA = "quota"  # all pools of the same ``quota_key``
    NONE = "none"


_Closed = (
    type[PoolStockedOut]
    | type[PoolOutOfQuota]
    | type[PoolThrottled]
    | type[PoolCredentials]
    | type[PoolBadRequest]
    | type[PoolBackingOff]
)
"""The kinds of reasons for which a pool is closed."""


@dataclass(frozen=True, slots=True)
class Consequence:
    """The consequence of an outcome.

    Args:
        scope: the pools that are closed.
        kind: of the reason that they give.
        first_s, longest_s: how long they are closed, doubled with each failure in a row.
        counts: whether it is a failure of the pool: from the second in a row on slices are made
            one at a time, until one is ready.
    """

    scope: OutcomeScope
    kind: _Closed
    first_s: float
    longest_s: float
    counts: bool = True


CONSEQUENCES = {
    CreateOutcome.STOCK_OUT: Consequence(
        OutcomeScope.POOL, PoolStockedOut, 180.0, 1800.0, counts=False
    ),
    CreateOutcome.QUOTA: Consequence(
        OutcomeScope.QUOTA, PoolOutOfQuota, 300.0, 1800.0, counts=False
    ),
    CreateOutcome.THROTTLED: Consequence(OutcomeScope.POOL, PoolThrottled, 5.0, 60.0, counts=False),
    CreateOutcome.CREDENTIALS: Consequence(OutcomeScope.POOL, PoolCredentials, 60.0, 600.0),
    CreateOutcome.BAD_REQUEST: Consequence(OutcomeScope.POOL, PoolBadRequest, 300.0, 1800.0),
    CreateOutcome.UNKNOWN: Consequence(OutcomeScope.POOL, PoolBackingOff, 15.0, 1800.0),
    CreateOutcome.NOT_BOOTED: Consequence(OutcomeScope.POOL, PoolBackingOff, 60.0, 1800.0),
}
"""Sources: Karpenter remembers want of stock for three minutes; Kubernetes' cluster-autoscaler
backs off for 5 to 30 minutes."""
_JITTER = 0.2


@dataclass(frozen=True, slots=True)
class PoolStanding:
    """A pool's, or a quota's, as its last outcomes left it.

    Args:
        outcome: the last that was not CREATED; None if the last slice became ready.
        in_a_row: how many outcomes of that kind there were in a row.
        failures: failures of the pool in a row, since a slice became ready.
        closed_until: seconds since the epoch.
        told: the provider's own words.
    """

    outcome: CreateOutcome | None = None
    in_a_row: int = 0
    failures: int = 0
    closed_until: float = 0.0
    told: str = ""

    def after(
        self, outcome: CreateOutcome, now: float, chance: float, told: str = ""
    ) -> "PoolStanding":
        """The standing after an outcome, which was not CREATED.

        Args:
            chance: from 0 to 1, by which pools that were closed together open one after the other.
            told: the provider's own words.
        """
        follows = CONSEQUENCES[outcome]
        in_a_row = self.in_a_row + 1 if outcome is self.outcome else 1
        closed_s = min(follows.first_s * 2.0 ** min(in_a_row - 1, 32), follows.longest_s)
        closed_s *= 1.0 + _JITTER * (2.0 * chance - 1.0)
        return PoolStanding(
            outcome,
            in_a_row,
            self.failures + follows.counts,
            max(self.closed_until, now + closed_s),
            told[:MAX_TOLD],
        )

    def made(self) -> "PoolStanding":
        """The standing once the provider has made a slice: what kept it from that is over. Whether
        its machines boot is not known yet."""
        if self.outcome is None or CONSEQUENCES[self.outcome].counts:
            return self
        return replace(self, outcome=None, in_a_row=0, told="")

    def ready(self) -> "PoolStanding":
        """The standing once a slice became ready."""
        return GOOD if self != GOOD else self

    def closed(self, pool: str, quota_key: str | None, now: float) -> Reason | None:
        """The reason for which the pool makes nothing now; None if it may."""
        if self.outcome is None or now >= self.closed_until:
            return None
        kind, in_s = CONSEQUENCES[self.outcome].kind, round(self.closed_until - now)
        told = self.told or None
        if issubclass(kind, PoolOutOfQuota):
            return kind(pool=pool, in_s=in_s, quota_key=quota_key or pool, told=told)
        if issubclass(kind, PoolBackingOff):
            return kind(pool=pool, in_s=in_s, failures=self.failures, told=told)
        return kind(pool=pool, in_s=in_s, told=told)

    @property
    def at_once(self) -> int | None:
        """The number of slices that may be in flight at a time; None if nothing limits it."""
        return 1 if self.failures > 1 else None


GOOD = PoolStanding()


def breaks(silent: int, machines: int) -> bool:
    """Whether so many machines of a pool are silent or unknown at once that it is likelier that we
    are cut off, or remember wrongly, than that they are gone: more than a fifth, and at least two.
    """
    return silent >= 2 and silent * 5 > machines
