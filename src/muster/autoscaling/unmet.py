"""Demand that no pool serves, and the reasons of each pool, formed when somebody looks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from muster.autoscaling.matching import Matcher
from muster.autoscaling.pool_state import CeilingBudget, PoolState
from muster.core.ids import SessionId
from muster.core.reasons import Reason
from muster.scheduling.workload import WorkloadClass


@dataclass(frozen=True, slots=True)
class RoutingOutcome:
    """The end of a routing, for the reasons of what is unmet.

    Args:
        opened: the slices to be made, by pool's number.
        budget: what these leave of the group's ceilings.
    """

    pools: Sequence[PoolState]
    matcher: Matcher
    opened: Sequence[int]
    budget: CeilingBudget

    def exhausted(self, number: int) -> Reason:
        """The reason for which no further slice of a pool can be made."""
        pool, opened = self.pools[number], self.opened[number]
        if pool.headroom > opened and self.budget.allows(pool.spec) == 0:
            return self.budget.refusal(pool.spec)
        return pool.exhausted(opened)


class Unmet:
    """The reasons for which no pool serves a class of sessions, formed when somebody looks; all of
    its entries share them.

    Args:
        refused: by pool's number, why slices of it would not do, although its machines could hold
            kernels of the class.
    """

    def __init__(
        self, workload: WorkloadClass, outcome: RoutingOutcome, refused: Mapping[int, Reason]
    ) -> None:
        self._workload = workload
        self._outcome = outcome
        self._refused = refused

    @property
    def reasons(self) -> Mapping[str, tuple[Reason, ...]]:
        """By pool all reasons that hold for it."""
        return self._of(range(self.pools))

    def some(self, pools: int) -> Mapping[str, tuple[Reason, ...]]:
        """``reasons`` of so many pools, those first that have the machines."""
        ranked = self._outcome.matcher.match(self._workload).pools
        matching = set(ranked)
        others = (number for number in range(self.pools) if number not in matching)
        return self._of(islice(chain(ranked, others), pools))

    def _of(self, pools: Iterable[int]) -> Mapping[str, tuple[Reason, ...]]:
        outcome, workload = self._outcome, self._workload
        matching = set(outcome.matcher.match(workload).pools)
        found: dict[str, tuple[Reason, ...]] = {}
        for number in pools:
            pool = outcome.pools[number]
            if number in self._refused:
                found[pool.spec.name] = (self._refused[number],)
            elif number in matching:
                found[pool.spec.name] = (outcome.exhausted(number),)
            else:
                found[pool.spec.name] = outcome.matcher.refusals(workload, pool.spec)
        return found

    @property
    def pools(self) -> int:
        """How many pools there are."""
        return len(self._outcome.pools)

    @property
    def could_be_met(self) -> bool:
        """Whether some pool has the machines, and only may not make enough of them now."""
        return bool(self._outcome.matcher.match(self._workload).pools)

    @property
    def nearest(self) -> str | None:
        """The value of pools that may have been meant; None where there is no such thing."""
        return None if self.could_be_met else self._outcome.matcher.nearest(self._workload)


@dataclass(frozen=True, slots=True)
class UnmetDemand:
    """Sessions of one class that no pool serves now, and why (source: Iris).

    Args:
        first: the first of them in the queue.
        sessions: how many they are.
    """

    first: SessionId
    workload: WorkloadClass
    sessions: int
    why: Unmet
