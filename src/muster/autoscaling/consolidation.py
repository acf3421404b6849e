"""The busy slice that is emptied because its work has room elsewhere (design: Autoscaling).

Whoever is moved begins anew, so little is moved: one slice of a group at a time, while nobody
waits, and only work that loses little by it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, permutations, zip_longest

from muster.autoscaling.slice_plan import SliceState
from muster.core.ids import AgentId, SessionId
from muster.core.reasons import ReasonCode
from muster.core.specs.pool import PoolSpec
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.fit import fit_session
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.workload import WorkloadClass

QUIET_S = 600.0
"""How long after a slice of a group was made, or emptied, none of the group is emptied."""
SETTLE_S = 3_600.0
"""How long work that was begun anew, whyever that was, is not moved."""
MOST_MOVED = 64
"""Sessions that are moved together at most; a slice with more of them stays."""
MOST_TRIED = 10
"""Slices whose work is tried elsewhere in one look, those that were not for longest first."""
_CLASSES = 3
"""Classes of sessions that are tried in every order."""
_LATER = frozenset(
    {
        ReasonCode.BEFORE_START_TIME,
        ReasonCode.JOB_HELD,
        ReasonCode.DEPENDENCY_NOT_MET,
        ReasonCode.DEPENDENCY_NOT_HEALTHY,
    }
)


@dataclass(frozen=True, slots=True)
class ConsolidationRules:
    """The limits within which a group lets work be moved.

    Args:
        after_s: the age from which on a slice may be emptied.
        saving: the least part of what the machines concerned cost that is saved.
        loss_s: the longest run that a session may lose.
    """

    after_s: float
    saving: float
    loss_s: float


@dataclass(frozen=True, slots=True)
class PlacedWork:
    """A session with a place on a slice.

    Args:
        agents: of its kernels, on this slice or elsewhere.
        begins_anew: whether its job begins another attempt if it is displaced.
        ran_s: how long it has run; None if it has not begun.
        settled_s: how long it has been since it was begun anew, the last time; None if it never
            was.
    """

    id: SessionId
    workload: WorkloadClass
    agents: Collection[AgentId]
    begins_anew: bool
    ran_s: float | None = None
    settled_s: float | None = None


@dataclass(frozen=True, slots=True)
class UsedSlice:
    """A slice of a group that is not to be deleted.

    Args:
        agents: of its machines.
        age_s: how long it has been READY; None if it never was.
        made_s: how long ago it was wished for.
    """

    state: SliceState
    agents: Collection[AgentId]
    age_s: float | None
    made_s: float


@dataclass(frozen=True, slots=True)
class Consolidation:
    """A slice that may be emptied.

    Args:
        sessions: how many are moved.
        saving: the part of what the machines concerned cost that is saved.
        price: the slice's, an hour.
    """

    slice: str
    sessions: int
    saving: float
    price: float


WorkOn = Callable[[str], Sequence[PlacedWork] | None]
"""Tells the work on a slice; None if something of it is in no state to be moved."""


def is_at_rest(group: GroupState) -> bool:
    """Whether nobody waits for room, or for another's end, and nobody is leaving: only work whose
    time or whose dependencies have not come may wait."""
    if group.due or group.aside or group.displacing or len(group.queue.promises):
        return False
    return all(
        any(each.code in _LATER for each in members.reasons) for members in group.queue.classes
    )


def slices_to_try(
    pools: Mapping[str, PoolSpec],
    slices: Sequence[UsedSlice],
    rules: ConsolidationRules,
    *,
    emptied_s: float,
    tried: Mapping[str, float],
) -> Sequence[UsedSlice]:
    """The slices whose work is to be tried elsewhere, MOST_TRIED at most; none while the group's
    slices are changing.

    Args:
        pools: by name those that could make a slice again.
        slices: all of the group that are not to be deleted.
        emptied_s: how long ago a slice of the group was emptied.
        tried: when each slice was tried last.
    """
    if min((each.made_s for each in slices), default=0.0) < QUIET_S or emptied_s < QUIET_S:
        return ()
    if any(each.age_s is None for each in slices):
        return ()
    left = _count(slices)
    found = [
        each
        for each in slices
        if each.state.busy
        and not each.state.is_kept
        and not each.state.awaited
        and (each.age_s or 0.0) >= rules.after_s
        and each.state.pool in pools
        and left[each.state.pool] > pools[each.state.pool].min_slices
    ]
    found.sort(key=lambda each: (tried.get(each.state.id, 0.0), each.state.id))
    return found[:MOST_TRIED]


def consolidate(
    snapshot: Snapshot,
    selector: AgentSelector,
    pools: Mapping[str, PoolSpec],
    slices: Sequence[UsedSlice],
    may_go: Iterable[UsedSlice],
    work_on: WorkOn,
    rules: ConsolidationRules,
) -> Consolidation | None:
    """The slice to be emptied, of those that lose least work; None if there is none.

    Its sessions have room at once on agents that stay: of no slice, of busy slices, and of idle
    ones that stay whatever happens. Nothing is taken.

    Args:
        snapshot: of the group.
        pools: of these slices, by name.
        slices: all of the group that are not to be deleted.
        may_go: those of them that may be emptied, as ``slices_to_try`` says.

    Raises:
        MusterError: the selector answers nonsense.
    """
    loads = []
    for each in may_go:
        work = work_on(each.state.id)
        if work and len(work) <= MOST_MOVED and all(_may_move(one, each, rules) for one in work):
            loads.append((_lost(work), each.state.id, each, work))
    if not loads:
        return None
    machines = _OtherMachines(snapshot, selector, pools, slices)
    for _, _, each, work in sorted(loads, key=lambda load: load[:2]):
        saving = machines.saving(each, work, rules.saving)
        if saving is not None:
            spec = pools[each.state.pool]
            price = spec.price * spec.slice_size
            return Consolidation(each.state.id, len(work), saving, price)
    return None


def _may_move(work: PlacedWork, slice_: UsedSlice, rules: ConsolidationRules) -> bool:
    return (
        work.begins_anew
        and work.workload.preemptible
        and (work.ran_s is None or work.ran_s <= rules.loss_s)
        and (work.settled_s is None or work.settled_s >= SETTLE_S)
        and all(agent in slice_.agents for agent in work.agents)  # a gang moves whole
    )


def _lost(work: Iterable[PlacedWork]) -> float:
    """The run time that is lost, all kernels together."""
    return sum((each.ran_s or 0.0) * len(each.workload.kernels) for each in work)


class _OtherMachines:
    """A copy of a group's agents, on which the work of one slice after the other is tried."""

    def __init__(
        self,
        snapshot: Snapshot,
        selector: AgentSelector,
        pools: Mapping[str, PoolSpec],
        slices: Sequence[UsedSlice],
    ) -> None:
        self._snapshot = snapshot.extended(())
        self._selector = selector
        self._pools = pools
        self._pool_of = {each.state.id: each.state.pool for each in slices}
        self._slice_of = {agent: each.state.id for each in slices for agent in each.agents}
        self._has_price = any(spec.price for spec in pools.values())
        left = _count(slices)
        for each in slices:
            if not _stays(each, pools[each.state.pool], left[each.state.pool]):
                self._accept(each, accepting=False)

    def _accept(self, slice_: UsedSlice, *, accepting: bool) -> None:
        for slot in self._snapshot.slots_among(slice_.agents):
            self._snapshot.columns.accept(range(slot, slot + 1), accepting=accepting)

    def saving(self, slice_: UsedSlice, work: Sequence[PlacedWork], least: float) -> float | None:
        """The part of what the slice and those that take its work cost together that is saved
        without it; None where that is less than ``least``, or its work has no room.

        Nobody knows in which order sessions come back, so they must have room in several.
        """
        own, saved = self._costs(slice_.state.pool), 1.0
        if not own:
            return None
        slots = self._snapshot.slots_among(slice_.agents)
        accepted = [slot for slot in slots if self._snapshot.facts(slot).accepting]
        self._accept(slice_, accepting=False)
        try:
            for order in _orders(work):
                takers = self._takers(order)
                if takers is None:
                    return None
                others = sum(self._costs(self._pool_of[each]) for each in takers)
                saved = min(saved, own / (own + others))
                if saved < least:
                    return None
            return saved
        finally:
            for slot in accepted:
                self._snapshot.columns.accept(range(slot, slot + 1), accepting=True)

    def _takers(self, order: Iterable[PlacedWork]) -> set[str] | None:
        """The slices on which the sessions find room, one after the other; None if they do not."""
        takers: set[str] = set()
        with Statement(self._snapshot, trial=True) as statement:
            for each in order:
                kernels = fit_session(statement, self._selector, each.workload).kernels
                if kernels is None:
                    return None
                of_slices = (self._slice_of.get(kernel.agent_id) for kernel in kernels)
                takers.update(filter(None, of_slices))
        return takers

    def _costs(self, pool: str) -> float:
        """The price of a slice for an hour; its machines, where no pool has a price."""
        spec = self._pools[pool]
        return spec.slice_size * (spec.price if self._has_price else 1.0)


def _stays(slice_: UsedSlice, spec: PoolSpec, left: int) -> bool:
    """Whether a slice stays whatever becomes of others. One that is idle for want of work would go,
    and one that is kept as a buffer would be replaced. The room of one for which a job waits is for
    that job."""
    state = slice_.state
    if state.awaited:
        return False
    if slice_.age_s is None or state.busy:
        return state.busy
    return not spec.buffer_slices and (state.is_kept or left <= spec.min_slices)


def _count(slices: Iterable[UsedSlice]) -> dict[str, int]:
    """How many slices each pool has."""
    counts: dict[str, int] = {}
    for each in slices:
        counts[each.state.pool] = counts.get(each.state.pool, 0) + 1
    return counts


def _orders(work: Sequence[PlacedWork]) -> Iterator[Iterable[PlacedWork]]:
    """Orders in which sessions may come back: one where all are alike."""
    of_class: dict[WorkloadClass, list[PlacedWork]] = {}
    for each in work:
        of_class.setdefault(each.workload, []).append(each)
    if len(of_class) == 1:
        yield work
        return
    some, rest = [*of_class.values()][:_CLASSES], [*of_class.values()][_CLASSES:]
    for order in permutations(some):
        yield chain(*order, *rest)
        if rest:
            yield chain(*reversed(rest), *order)
        in_turn = zip_longest(*order, *rest)
        yield (each for each in chain(*in_turn) if each is not None)
