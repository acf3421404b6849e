"""Orders in which a queue is tried, inside a band of equal priority (source: Sokovan); equal keys
go by age, then by identifier. A sequencer gives keys alone; ``passes.class_order`` sorts by them.

A dynamic sequencer's key depends on the session's owner alone (``by_owner``), and never falls while
a pass places sessions, so an earlier key is never too large.
"""

from muster.core.specs.amounts import parse_duration
from muster.scheduling.accounting.fairness import WEEK_S, Capacity, dominant_share
from muster.scheduling.accounting.usage import Scope, scopes
from muster.scheduling.policy.plugins import PassContext, SessionSequencer
from muster.scheduling.workload import SessionWorkload


class Fifo(SessionSequencer):
    """First in, first out."""

    dynamic = False

    def key(self, session: SessionWorkload, context: PassContext) -> tuple[float, ...]:
        return ()


class Lifo(SessionSequencer):
    """Last in, first out."""

    dynamic = False

    def key(self, session: SessionWorkload, context: PassContext) -> tuple[float, ...]:
        return (-session.submitted_at,)


class Drf(SessionSequencer):
    """Dominant resource fairness: the user who holds the least goes first (source: Ghodsi 2011).

    The measure is the dominant share of the user's holdings, in all groups, of this group's
    capacity. A session that a pass places counts at once, so that users take turns.
    """

    by_owner = True

    def __init__(self) -> None:
        self._capacity = Capacity()

    def key(self, session: SessionWorkload, context: PassContext) -> tuple[float, ...]:
        user, _, _ = scopes(session.workload.owner)
        capacity = self._capacity.of(context.snapshot)
        return (dominant_share(context.usage.of(user).amounts, capacity),)


class FairShare(SessionSequencer):
    """The owner who has lately used the least for its weight goes first: domains are compared, then
    projects, then users, a fair tree (source: Slurm) with the weights of ``QuotaSpec``.

    Usage is the recent mean dominant share, in which each second weighs half as much as one a
    half-life later. The present holding is added, so that within a pass each session placed moves
    its owner's later sessions back. An owner who held the whole group for a half-life and holds
    nothing now is level with one who has just got half of it.

    Args:
        half_life: seconds, or text such as "7d"; ``PassContext.fairness`` must have the same.

    Raises:
        ValueError: ``half_life`` is no duration above 0.
    """

    by_owner = True

    def __init__(self, half_life: float | str = WEEK_S) -> None:
        half_life_s = parse_duration(half_life)
        if not half_life_s:
            raise ValueError(f"half_life: expected a duration above 0, not {half_life!r}")
        self.half_life_s = float(half_life_s)
        self._capacity = Capacity()

    def key(self, session: SessionWorkload, context: PassContext) -> tuple[float, ...]:
        if context.fairness.half_life_s != self.half_life_s:
            kept = context.fairness.half_life_s
            raise ValueError(f"fairness was kept with a half-life of {kept} s")
        user, project, domain = scopes(session.workload.owner)
        return self._had(domain, context), self._had(project, context), self._had(user, context)

    def _had(self, scope: Scope, context: PassContext) -> float:
        capacity = self._capacity.of(context.snapshot)
        used = dominant_share(context.fairness.used(scope, context.now), capacity)
        held = dominant_share(context.usage.of(scope).amounts, capacity)
        quota = context.quotas.of(scope)
        weight = None if quota is None else quota.weight
        # In steps of a billionth, so that usage that is all but forgotten counts as none.
        return round(used / context.fairness.mean_life_s + held, 9) / (weight or 1.0)
