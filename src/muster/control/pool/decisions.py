"""The last decision about a group's demand, as people are shown it: by shape, and by session as far
as they may see these, so that nobody learns of others' work."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from muster.autoscaling.decision import RoutedDemand
from muster.autoscaling.modelled import Destination
from muster.autoscaling.unmet import UnmetDemand
from muster.control.pool.entries import entry_views, pending_views
from muster.control.pool.outlook import GroupOutlook
from muster.core.ids import SessionId
from muster.core.owner import Principal
from muster.core.views.base import ReasonView
from muster.core.views.pools import (
    DecisionView,
    RefusalView,
    RoutedView,
    ShapeView,
    UnmetView,
    WithheldView,
)
from muster.scheduling.cluster.constraints import hard_rules
from muster.scheduling.workload import WorkloadClass
from muster.store.live import Live

MAX_SHAPES = 20
"""Shapes that are told, of those that are routed and of those that are unmet."""
MAX_POOLS = 20
"""Pools whose reasons are told for a shape."""
MAX_SLICES = 5
"""Slices that are named for a shape."""
_RULE = 200
"""Characters of a rule that are told."""


@dataclass(slots=True)
class _Routed:
    """Sessions of one shape with one destination.

    Args:
        first: the first of them in the queue; empty while all are still to come.
        pool: of the slices on which they find room; None where that is none.
        on: those of these slices that exist.
    """

    first: SessionId
    workload: WorkloadClass
    destination: Destination
    pool: str | None
    sessions: int = 0
    on: dict[str, None] = field(default_factory=dict)


class _Shapes:
    """Numbers of shapes: of all by which pools are chosen, without owners and priorities."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._of: dict[WorkloadClass, int] = {}

    def number(self, workload: WorkloadClass) -> int:
        if workload not in self._of:
            shape = (workload.kernels, workload.placement, workload.unfit_agents)
            self._of[workload] = self._numbers.setdefault(shape, len(self._numbers))
        return self._of[workload]


def decision_view(
    outlook: GroupOutlook, live: Live, pool_of: Mapping[str, str], asker: Principal
) -> DecisionView:
    """The decision as the asker may see it.

    Args:
        pool_of: the pool of each slice that exists.
    """
    routed, other_routed = routed_views(outlook, pool_of, asker)
    unmet, other_unmet = unmet_views(outlook, asker)
    withheld, other_withheld = withheld_views(outlook, asker)
    entries, other_entries = entry_views(outlook, live, pool_of, asker)
    return DecisionView(
        routed=routed,
        other_routed=other_routed,
        unmet=unmet,
        other_unmet=other_unmet,
        withheld=withheld,
        other_withheld=other_withheld,
        entries=entries,
        other_entries=other_entries,
        pending=pending_views(outlook.decision, pool_of),
        launches=dict(outlook.decision.launches),
    )


def routed_views(
    outlook: GroupOutlook, pool_of: Mapping[str, str], asker: Principal
) -> tuple[tuple[RoutedView, ...], int]:
    """The demand that is to find room, and how many shapes are left out.

    Args:
        pool_of: the pool of each slice that exists.
    """
    found: dict[tuple[int, Destination, str | None], _Routed] = {}
    shapes = _Shapes()
    for routed in outlook.decision.routed:
        entry = routed.entry
        on = outlook.slices_for(entry.session) or _slice_of(routed)
        pool = _pool_of(on[0], pool_of) if on else None
        key = (shapes.number(entry.workload), routed.destination, pool)
        each = found.get(key)
        if each is None:
            each = found[key] = _Routed(entry.session, entry.workload, routed.destination, pool)
        each.first = each.first or entry.session
        each.sessions += 1
        each.on.update(dict.fromkeys(id_ for id_ in on if id_ in pool_of))
    told = [*found.values()][:MAX_SHAPES]
    return tuple(_routed(each, asker) for each in told), len(found) - len(told)


def _routed(each: _Routed, asker: Principal) -> RoutedView:
    return RoutedView(
        shape=_shape(each.workload, each.sessions, each.first, asker),
        destination=each.destination,
        pool=each.pool,
        slices=tuple(each.on)[:MAX_SLICES],
        other_slices=max(0, len(each.on) - MAX_SLICES),
    )


def _slice_of(routed: RoutedDemand) -> tuple[str, ...]:
    """The slice on which the first kernel of an entry is to run; a session that is still to come
    waits for none."""
    slice_ = routed.kernels[0].agent_id.rpartition("/")[0]
    return (slice_,) if slice_ and routed.destination is not Destination.FREE else ()


def _pool_of(slice_: str, pool_of: Mapping[str, str]) -> str | None:
    """The pool of a slice, which may be one that is still to be made: ``pool+number``."""
    return pool_of.get(slice_) or slice_.rpartition("+")[0] or None


def unmet_views(outlook: GroupOutlook, asker: Principal) -> tuple[tuple[UnmetView, ...], int]:
    """The demand that no pool serves, with each pool's reasons, and how many shapes are left
    out."""
    found: dict[int, list[UnmetDemand]] = {}
    shapes = _Shapes()
    for unmet in outlook.decision.unmet:
        found.setdefault(shapes.number(unmet.workload), []).append(unmet)
    told = [*found.values()][:MAX_SHAPES]
    return tuple(_unmet(each, outlook, asker) for each in told), len(found) - len(told)


def withheld_views(outlook: GroupOutlook, asker: Principal) -> tuple[tuple[WithheldView, ...], int]:
    """The sessions that are no demand because of a rule, and how many classes are left out. A
    quota's numbers are those of its owner, so only what the asker may see is told."""
    seen = [each for each in outlook.decision.withheld if asker.may_see(each.workload.owner)]
    told = tuple(
        WithheldView(
            shape=_shape(each.workload, each.sessions, each.first, asker),
            reasons=tuple(map(ReasonView.of, each.reasons)),
        )
        for each in seen[:MAX_SHAPES]
    )
    return told, len(outlook.decision.withheld) - len(told)


def _unmet(alike: list[UnmetDemand], outlook: GroupOutlook, asker: Principal) -> UnmetView:
    first, *_ = alike
    why = first.why
    never = outlook.out_of_reach(first.workload)
    return UnmetView(
        shape=_shape(first.workload, sum(each.sessions for each in alike), first.first, asker),
        could_be_met=why.could_be_met and never is None,
        never=None if never is None else ReasonView.of(never),
        nearest=why.nearest,
        pools=tuple(
            RefusalView(pool=pool, reasons=tuple(map(ReasonView.of, found)))
            for pool, found in why.some(MAX_POOLS).items()
        ),
        other_pools=max(0, why.pools - MAX_POOLS),
    )


def _shape(workload: WorkloadClass, sessions: int, first: SessionId, asker: Principal) -> ShapeView:
    asks = [request.describe() for request, _ in workload.requests]
    return ShapeView(
        asks=" or ".join(asks[:3]),
        kernels=len(workload.kernels),
        rules=tuple(_rules(workload))[:MAX_SLICES],
        sessions=sessions,
        first=first or None if asker.may_see(workload.owner) else None,
    )


def _rules(workload: WorkloadClass) -> Iterable[str]:
    for rule in hard_rules(workload.placement):
        yield "named agents only" if rule is None else str(rule)[:_RULE]
