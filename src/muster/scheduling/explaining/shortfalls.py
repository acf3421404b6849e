"""The shortfalls of each agent of a group for one request of a session, and the agents that are
best for it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from muster.core.reasons import Reason
from muster.core.reasons.of_agents import (
    AgentNotAlive,
    AgentUnfit,
    ConstraintNotMet,
    LacksCapacity,
    LacksForAll,
    LacksFree,
    NoSingleDevice,
    NotDesignated,
)
from muster.core.reasons.of_groups import PortTaken
from muster.core.resources import GPU_WHOLE, Resources, unit_of
from muster.core.specs.placement import ClusterMode, Constraint
from muster.scheduling.cluster.columns import Flags, Floats, Ints
from muster.scheduling.cluster.constraints import (
    eligible,
    hard_rules,
    has_free,
    is_fit,
    meets_rule,
)
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.fitting.filling import best_first
from muster.scheduling.fitting.fit import gang_places
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.workload import KernelPlacement, WorkloadClass

MAX_GROUPS = 20
MAX_VALUES = 8
"""Values of an attribute by which agents that do not meet a rule on it are told apart, at most."""
_EXAMPLES = 3
_NOT_DESIGNATED = NotDesignated()
_RUNNERS_UP = 5


@dataclass(frozen=True, slots=True)
class AgentGroup:
    """Agents with the same kinds of shortfalls, and the agent among them that is nearest to none.

    Args:
        agents: how many.
        examples: names of some.
        nearest: the name of the agent with the smallest shortfall.
        shortfalls: the nearest agent's shortfalls, with numbers; empty if these agents have room.
    """

    agents: int
    examples: tuple[str, ...]
    nearest: str
    shortfalls: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class RequestExplanation:
    """How the agents suit one of the session's distinct requests.

    Args:
        request: of each of ``kernels`` kernels.
        fit: how many of these kernels find room by themselves.
        groups: the largest first, at most ``MAX_GROUPS``.
        other_agents: how many agents are in none of the groups.
        scores: the best agents with room and their scores; the first one wins.
    """

    request: Resources
    kernels: int
    fit: int
    groups: tuple[AgentGroup, ...]
    other_agents: int
    scores: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class _Need:
    """One resource that a kernel needs of an agent, and the free amount of each agent that is
    looked at."""

    resource: str
    requested: int
    free: Ints
    capacity: Ints
    when_short: type[LacksFree] | type[NoSingleDevice] = LacksFree

    def short(self) -> Flags:
        return self.free < self.requested

    def kind(self) -> Ints:
        """0 where nothing is lacking, else a number for the kind of shortfall."""
        return self.short().astype(np.int64) + (self.short() & (self.capacity < self.requested))

    def distance(self) -> Floats:
        return (self.requested - self.free) / max(self.requested, 1)

    def reason(self, agent: int, members: Ints) -> Reason:
        """The shortfall of ``agent``, the nearest among ``members``."""
        free, capacity = int(self.free[agent]), int(self.capacity[agent])
        unit = unit_of(self.resource)
        if capacity < self.requested:
            return LacksCapacity(
                resource=self.resource, unit=unit, requested=self.requested, capacity=capacity
            )
        return self.when_short(
            resource=self.resource,
            unit=unit,
            requested=self.requested,
            capacity=capacity,
            free=free,
        )


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule that some agents do not meet.

    Args:
        constraint: None where it is no rule about an attribute: then ``unmet`` says which it is.
        codes: the attribute's value of each agent that is looked at, as an index into ``values``;
            -1 for none.
    """

    constraint: Constraint | None
    met: Flags
    codes: Ints
    values: tuple[str, ...]
    unmet: Reason = _NOT_DESIGNATED

    def short(self) -> Flags:
        return ~self.met

    def kind(self) -> Ints:
        """Kinds of shortfalls, told apart by the agent's value too, unless there are too many
        values."""
        there = np.flatnonzero(np.bincount(self.codes[~self.met] + 1))
        if there.size > MAX_VALUES:
            return self.short().astype(np.int64)
        return np.where(self.met, 0, np.searchsorted(there, self.codes + 1) + 1)

    def distance(self) -> Floats:
        return np.ones(self.met.size, np.float64)

    def reason(self, agent: int, members: Ints) -> Reason:
        """The reason why ``agent``, the nearest among ``members``, does not meet the rule."""
        if self.constraint is None:
            return self.unmet
        code, others = int(self.codes[agent]), np.unique(self.codes[members]).size - 1
        return ConstraintNotMet(
            attribute=self.constraint.attribute,
            has=self.values[code] if code >= 0 else "not there",
            asked=str(self.constraint),
            others=others or None,
        )


@dataclass(frozen=True, slots=True)
class _Whole:
    """The rule that all kernels of a request are on one agent, or on agents that share a value, by
    the number of them that each agent's place has room for.

    Args:
        fit: that number of each agent that is looked at; 0 where it has no room for one.
        where: words for the place, which follow "have to be".
    """

    kernels: int
    fit: Ints
    where: str

    def short(self) -> Flags:
        """Agents without room for one kernel lack something else, which is told instead."""
        return (self.fit > 0) & (self.fit < self.kernels)

    def kind(self) -> Ints:
        return np.where(self.short(), self.fit, 0)

    def distance(self) -> Floats:
        return (self.kernels - self.fit) / self.kernels

    def reason(self, agent: int, members: Ints) -> Reason:
        """The number of kernels for which the place of ``agent`` has room."""
        return LacksForAll(fit=int(self.fit[agent]), kernels=self.kernels, where=self.where)


_Lack = _Need | _Rule | _Whole


def explain_request(
    snapshot: Snapshot,
    selector: AgentSelector,
    workload: WorkloadClass,
    request: Resources,
    indexes: Sequence[int],
    places: Sequence[KernelPlacement],
) -> RequestExplanation:
    """
    Args:
        indexes: of the kernels that make the request.
        places: of all kernels of the session now; empty if they have no room.

    Raises:
        MusterError: the selector raises or answers nonsense.
    """
    kernels = len(indexes)
    slots = np.flatnonzero(snapshot.columns.present)
    candidates = _candidates(snapshot, workload, request)
    room = snapshot.columns.copies(request, candidates, kernels)
    every: list[_Lack] = [*_rules(snapshot, workload, slots), *_needs(snapshot, request, slots)]
    every += _whole(snapshot, workload, kernels, slots, candidates, room)
    needs = [need for need in every if need.short().any()]
    kind, distance = _kinds_and_distances(snapshot, needs, slots)
    _, kind, counts = np.unique(kind, return_inverse=True, return_counts=True)
    largest_first = np.argsort(-counts, kind="stable")[:MAX_GROUPS]
    groups = []
    for each in largest_first.tolist():
        members = np.flatnonzero(kind == each)
        nearest = int(members[distance[members].argmin()])
        slot = int(slots[nearest])
        facts = snapshot.facts(slot)
        lacking = [need.reason(nearest, members) for need in needs if need.short()[nearest]]
        if not facts.accepting:
            lacking.insert(0, AgentNotAlive(status=facts.status))
        examples = [snapshot.facts(slot).name for slot in slots[members[:_EXAMPLES]].tolist()]
        groups.append(AgentGroup(members.size, tuple(examples), facts.name, tuple(lacking)))
    shown = int(counts[largest_first].sum())
    its = [places[index] for index in indexes] if places else []
    return RequestExplanation(
        request,
        kernels,
        min(int(room.sum()), kernels),
        tuple(groups),
        slots.size - shown,
        _scores(snapshot, selector, workload, request, candidates, its),
    )


def _whole(
    snapshot: Snapshot,
    workload: WorkloadClass,
    kernels: int,
    slots: Ints,
    candidates: Ints,
    room: Ints,
) -> list[_Whole]:
    """The rule for all kernels of a request together, if the session has one.

    Args:
        candidates: the slots with room for one kernel.
        room: for how many kernels each of them has room.
    """
    placement = workload.placement
    if placement.mode is ClusterMode.SINGLE_NODE:
        where = "on one agent"
    elif placement.together is not None:
        where = f"on agents of one {placement.together}"
    else:
        return []
    place_of = gang_places(snapshot, placement)
    by_place = np.bincount(place_of[candidates], room, place_of.max(initial=0) + 1)
    fit = np.zeros(snapshot.columns.slots, np.int64)
    fit[candidates] = np.minimum(by_place[place_of[candidates]], kernels)
    return [_Whole(kernels, fit[slots], where)]


def _candidates(snapshot: Snapshot, workload: WorkloadClass, request: Resources) -> Ints:
    candidates = snapshot.columns.fitting(request)
    allowed = eligible(snapshot, workload)
    return candidates if allowed is None else candidates[allowed[candidates]]


def _scores(
    snapshot: Snapshot,
    selector: AgentSelector,
    workload: WorkloadClass,
    request: Resources,
    candidates: Ints,
    places: Sequence[KernelPlacement],
) -> tuple[tuple[str, float], ...]:
    """The best of ``candidates`` in the order in which placement chooses.

    Args:
        places: of the kernels that make the request, if the whole session has room.
    """
    if not candidates.size:
        return ()
    before: Ints | None = None
    if places:  # which also depends on other kernels of the gang and on rules for all of them
        together, ranked = workload.placement.together, workload.placement.rank_by is not None
        before = np.full(snapshot.columns.slots, len(places), np.int64)
        slots = [snapshot.slot(place.agent_id) for place in places]
        for index in range(len(slots) - 1, -1, -1):
            before[slots[index]] = 0 if ranked else index
        if together is not None:
            values, _ = snapshot.attribute(together)
            before += values != values[slots[0]]
    best = best_first(snapshot, selector, workload, request, candidates, _RUNNERS_UP, before)
    return tuple((snapshot.facts(slot).name, round(score, 6)) for slot, score in best)


def _rules(snapshot: Snapshot, workload: WorkloadClass, slots: Ints) -> list[_Rule]:
    none, no_values = np.full(slots.size, -1, np.int64), tuple[str, ...]()
    rules = []
    for constraint in hard_rules(workload.placement):
        met = meets_rule(snapshot, workload.placement, constraint)[slots]
        codes, values = none, no_values
        if constraint is not None:
            codes, values = snapshot.attribute(constraint.attribute)
            codes = codes[slots]
        rules.append(_Rule(constraint, met, codes, values))
    if workload.unfit_agents:
        fit = is_fit(snapshot, workload)[slots]
        rules.append(_Rule(None, fit, none, no_values, AgentUnfit()))
    if workload.port is not None:
        free = has_free(snapshot, workload.port)[slots]
        rules.append(_Rule(None, free, none, no_values, PortTaken(port=workload.port)))
    return rules


def _needs(snapshot: Snapshot, request: Resources, slots: Ints) -> list[_Need]:
    """Everything that ``Columns.fitting`` checks, one by one.

    Dimensions that the request does not name are included, because nothing fits on an agent where
    the free amount of any dimension is below zero.
    """
    columns = snapshot.columns
    free, capacity = columns.free, columns.capacity
    asked = request.as_dict()
    gpu_milli = asked.pop("gpu", 0)
    needs = [
        _Need(name, asked.pop(name, 0), free[slots, row], capacity[slots, row])
        for row, name in enumerate(columns.dimensions)
    ]
    none = np.zeros(slots.size, np.int64)
    needs += [_Need(name, amount, none, none) for name, amount in asked.items()]
    if gpu_milli:
        needs.append(_gpus(snapshot, request, slots))
    devices = columns.device_count[slots]
    overbooked = columns.device_free.min(axis=1, initial=0)[slots]
    needs.append(_Need("gpu", 0, overbooked, devices * GPU_WHOLE))
    return needs


def _gpus(snapshot: Snapshot, request: Resources, slots: Ints) -> _Need:
    """Devices of the models that the request allows."""
    columns, wanted = snapshot.columns, request.gpu_models
    name = f"gpu ({' or '.join(wanted)})" if wanted else "gpu"
    is_part = request.gpu_milli < GPU_WHOLE
    has_unusable = bool(wanted)
    if is_part and columns.has_partitions:
        name, has_unusable = f"{name}, shared", True
    count, whole = columns.device_count[slots], columns.whole_free[slots]
    largest = columns.largest_free[slots]
    if has_unusable:
        free, usable = columns.device_free.T[:, slots], columns.usable(request, slots)
        count, whole = usable.sum(axis=0), (usable & (free == GPU_WHOLE)).sum(axis=0)
        largest = np.where(usable, free, 0).max(axis=0, initial=0)
    if not is_part:
        return _Need(name, request.gpu_milli, whole * GPU_WHOLE, count * GPU_WHOLE)
    one = np.minimum(count, 1) * GPU_WHOLE
    return _Need(name, request.gpu_milli, largest, one, NoSingleDevice)


def _kinds_and_distances(
    snapshot: Snapshot, needs: Sequence[_Lack], slots: Ints
) -> tuple[Ints, Floats]:
    """For each agent a number that stands for its combination of shortfalls, and how far it is from
    having none."""
    accepting = snapshot.columns.accepting[slots]
    statuses: dict[str, int] = {}
    kind = np.zeros(slots.size, np.int64)
    for agent in np.flatnonzero(~accepting).tolist():
        status = snapshot.facts(int(slots[agent])).status
        kind[agent] = statuses.setdefault(status, len(statuses) + 1)
    distance = np.zeros(slots.size, np.float64)
    for need in needs:
        short = need.short()
        distance += np.where(short, need.distance(), 0.0)
        its = need.kind()
        kind = kind * (1 + its.max(initial=0)) + its
        if kind.max(initial=0) > 2**50:  # number the combinations that occur anew
            kind = np.unique(kind, return_inverse=True)[1]
    return kind, distance
