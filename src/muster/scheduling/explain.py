"""Why a session does not start, agent by agent, and what would have to change: the answer of
`muster why` and of `muster plan`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from muster.core.ids import SessionId
from muster.core.reasons import Reason, ReasonCode, lacks, reason
from muster.core.resources import GPU_WHOLE, Resources, is_model
from muster.core.specs.placement import Constraint, Operator
from muster.scheduling.columns import Flags, Floats, Ints
from muster.scheduling.constraints import eligible, meets
from muster.scheduling.placement import PlacementPass
from muster.scheduling.plugins import PassContext
from muster.scheduling.policy import Policy
from muster.scheduling.preemption import Preemption
from muster.scheduling.queue import Queue
from muster.scheduling.reservation import Reservation
from muster.scheduling.snapshot import Snapshot
from muster.scheduling.statement import Statement
from muster.scheduling.workload import KernelPlacement, SessionWorkload, WorkloadClass

MAX_GROUPS = 20
_EXAMPLES = 3
_RUNNERS_UP = 5
_LACKS_ROOM = {
    ReasonCode.NO_ROOM,
    ReasonCode.GANG_NO_ROOM,
    ReasonCode.BEHIND_RESERVATION,
    ReasonCode.BEHIND_STARVING,
}


@dataclass(frozen=True, slots=True)
class AgentGroup:
    """Agents that lack the same, with the one of them that lacks least.

    Args:
        agents: how many they are.
        examples: names of some.
        nearest: the name of the nearest miss.
        lacks: what that one lacks, with its numbers; empty if these agents have room.
    """

    agents: int
    examples: tuple[str, ...]
    nearest: str
    lacks: tuple[Reason, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "agents": self.agents,
            "examples": list(self.examples),
            "nearest": self.nearest,
            "lacks": [reason_dict(each) for each in self.lacks],
        }


@dataclass(frozen=True, slots=True)
class RequestExplanation:
    """What the agents have for one of the session's distinct requests.

    Args:
        request: what each of ``kernels`` kernels asks for.
        fit: how many of those find room by themselves.
        groups: the largest first, at most ``MAX_GROUPS``.
        other_agents: how many agents are in no group of these.
        scores: the best agents that have room, with what the selector makes of them; the first one
            wins.
    """

    request: Resources
    kernels: int
    fit: int
    groups: tuple[AgentGroup, ...]
    other_agents: int
    scores: tuple[tuple[str, float], ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "request": self.request.as_dict(),
            "asks": self.request.describe(),
            "kernels": self.kernels,
            "fit": self.fit,
            "groups": [group.as_dict() for group in self.groups],
            "other_agents": self.other_agents,
            "scores": [{"agent": agent, "score": score} for agent, score in self.scores],
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a placement pass would say of a session now, and why.

    Args:
        reasons: all that keeps it from starting; empty if it would start.
        position: its place in the order of the queue, from 1.
        queue: how many sessions wait.
        agents: how many were looked at: all of the group.
        kernels: how many kernels it has.
        kernels_fit: how many of them would find room together, once those ahead have started.
        requests: the most demanding first, seen after those ahead have started.
        placement: where its kernels would go, if it would start.
        reservation: what is kept for it, if it is the first that lacks room or others leave for it.
        displaces: whom it would displace, if its group allows that.
    """

    session: SessionId
    group: str
    reasons: tuple[Reason, ...]
    position: int
    queue: int
    agents: int
    kernels: int
    kernels_fit: int
    requests: tuple[RequestExplanation, ...]
    placement: tuple[KernelPlacement, ...] = ()
    reservation: Reservation | None = None
    displaces: Preemption | None = None

    @property
    def starts(self) -> bool:
        return not self.reasons

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON can hold it, sentences included."""
        return {
            "session": self.session,
            "group": self.group,
            "starts": self.starts,
            "reasons": [reason_dict(each) for each in self.reasons],
            "position": self.position,
            "queue": self.queue,
            "agents": self.agents,
            "kernels": self.kernels,
            "kernels_fit": self.kernels_fit,
            "requests": [each.as_dict() for each in self.requests],
            "placement": [
                {"agent": kernel.agent_id, "devices": [share.index for share in kernel.shares]}
                for kernel in self.placement
            ],
            "reservation": self.reservation.as_dict() if self.reservation else None,
            "displaces": self.displaces.as_dict() if self.displaces else None,
        }


def explain(
    session: SessionWorkload,
    queue: Queue,
    snapshot: Snapshot,
    policy: Policy,
    context: PassContext,
) -> Explanation:
    """Explain what ``place`` would decide about ``session``; the same code decides here.

    Those ahead of it are placed first, and all is rolled back: snapshot and queue stay as they are.

    Args:
        queue: the group's; ``session`` is counted in if it does not wait there yet.

    Raises:
        MusterError: a plug-in answers nonsense.
    """
    what = session.what
    with Statement(snapshot) as statement:
        ahead = PlacementPass(queue, statement, policy, context)
        ahead.run(before=session)
        requests = tuple(
            _explain_request(statement, policy, what, request, len(indexes))
            for request, indexes in what.requests
        )
        fit = ahead.would_fit(session)
        reasons, kernels = ahead.judge(session)
        lacks_room = len(reasons) == 1 and reasons[0].code in _LACKS_ROOM
        displaces = ahead.victims_for(session) if lacks_room else None
    return Explanation(
        session=session.id,
        group=snapshot.group,
        reasons=reasons,
        position=1 + ahead.ahead_of(session),
        queue=len(queue) + (session.id not in queue),
        agents=len(snapshot),
        kernels=len(what.kernels),
        kernels_fit=fit.placed,
        requests=requests,
        placement=() if reasons else kernels,
        reservation=_kept_for(session, queue),
        displaces=displaces,
    )


def _kept_for(session: SessionWorkload, queue: Queue) -> Reservation | None:
    kept = queue.rooms.get(session.id)
    return None if kept is None else kept.reservation


@dataclass(frozen=True, slots=True)
class _Need:
    """One thing that a kernel needs of an agent, and what each looked-at agent has of it."""

    resource: str
    requested: int
    free: Ints
    capacity: Ints
    when_short: ReasonCode = ReasonCode.LACKS_FREE

    def short(self) -> Flags:
        return self.free < self.requested

    def beyond(self) -> Flags:
        return self.capacity < self.requested

    def distance(self) -> Floats:
        return (self.requested - self.free) / max(self.requested, 1)

    def reason(self, snapshot: Snapshot, slot: int, agent: int) -> Reason:
        free, capacity = int(self.free[agent]), int(self.capacity[agent])
        if capacity < self.requested:
            return lacks(
                ReasonCode.LACKS_CAPACITY,
                self.resource,
                requested=self.requested,
                capacity=capacity,
            )
        return lacks(
            self.when_short, self.resource, requested=self.requested, free=free, capacity=capacity
        )


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule of placement that some agents do not meet; None stands for the designated agents."""

    constraint: Constraint | None
    met: Flags

    def short(self) -> Flags:
        return ~self.met

    def beyond(self) -> Flags:
        return ~self.met

    def distance(self) -> Floats:
        return np.ones(self.met.size, np.float64)

    def reason(self, snapshot: Snapshot, slot: int, agent: int) -> Reason:
        if self.constraint is None:
            return reason(ReasonCode.NOT_DESIGNATED)
        attribute = self.constraint.attribute
        has = snapshot.facts(slot).attributes.get(attribute, "not there")
        return reason(
            ReasonCode.CONSTRAINT_NOT_MET, attribute=attribute, has=has, asked=str(self.constraint)
        )


def _explain_request(
    statement: Statement, policy: Policy, what: WorkloadClass, request: Resources, kernels: int
) -> RequestExplanation:
    snapshot = statement.snapshot
    slots = np.flatnonzero(snapshot.columns.present)
    every: list[_Need | _Rule] = [*_rules(snapshot, what, slots)]
    every += _needs(snapshot, request, slots)
    needs = [need for need in every if need.short().any()]
    kind, distance = _what_is_lacking(snapshot, needs, slots)
    _, kind, counts = np.unique(kind, return_inverse=True, return_counts=True)
    largest_first = np.argsort(-counts, kind="stable")[:MAX_GROUPS]
    groups = []
    for each in largest_first.tolist():
        members = np.flatnonzero(kind == each)
        nearest = int(members[distance[members].argmin()])
        slot = int(slots[nearest])
        facts = snapshot.facts(slot)
        lacking = [need.reason(snapshot, slot, nearest) for need in needs if need.short()[nearest]]
        if not facts.accepting:
            lacking.insert(0, reason(ReasonCode.AGENT_NOT_ALIVE, status=facts.status))
        examples = [snapshot.facts(slot).name for slot in slots[members[:_EXAMPLES]].tolist()]
        groups.append(AgentGroup(members.size, tuple(examples), facts.name, tuple(lacking)))
    shown = int(counts[largest_first].sum())
    candidates = _candidates(snapshot, what, request)
    room = snapshot.columns.copies(request, candidates, kernels)
    return RequestExplanation(
        request,
        kernels,
        min(int(room.sum()), kernels),
        tuple(groups),
        slots.size - shown,
        _scores(snapshot, policy, request, candidates),
    )


def _candidates(snapshot: Snapshot, what: WorkloadClass, request: Resources) -> Ints:
    candidates = snapshot.columns.fitting(request)
    allowed = eligible(snapshot, what)
    return candidates if allowed is None else candidates[allowed[candidates]]


def _scores(
    snapshot: Snapshot, policy: Policy, request: Resources, candidates: Ints
) -> tuple[tuple[str, float], ...]:
    if not candidates.size:
        return ()
    scores = policy.selector.score(request, snapshot, candidates)
    best = np.argsort(-scores, kind="stable")[:_RUNNERS_UP].tolist()
    return tuple(
        (snapshot.facts(int(candidates[index])).name, round(float(scores[index]), 6))
        for index in best
    )


def _rules(snapshot: Snapshot, what: WorkloadClass, slots: Ints) -> list[_Rule]:
    placement = what.placement
    rules = [
        _Rule(constraint, meets(snapshot, constraint)[slots])
        for constraint in placement.constraints
        if not constraint.soft
    ]
    if placement.together is not None:
        there = Constraint(attribute=placement.together, op=Operator.EXISTS)
        rules.append(_Rule(there, meets(snapshot, there)[slots]))
    if placement.agents and placement.agents_only:
        named = np.isin(slots, snapshot.slots_named(placement.agents))
        rules.append(_Rule(None, named))
    return rules


def _needs(snapshot: Snapshot, request: Resources, slots: Ints) -> list[_Need]:
    """All that ``Columns.fitting`` looks at, one by one.

    A dimension that is not asked for is there too: where it is below zero, nothing fits.
    """
    columns = snapshot.columns
    free, capacity = columns.free[slots].T, columns.capacity[slots].T
    asked = request.as_dict()
    gpu_milli = asked.pop("gpu", 0)
    needs = [
        _Need(name, asked.pop(name, 0), free[row], capacity[row])
        for row, name in enumerate(columns.dimensions)
    ]
    none = np.zeros(slots.size, np.int64)
    needs += [_Need(name, amount, none, none) for name, amount in asked.items()]
    if gpu_milli:
        needs.append(_gpus(snapshot, request, slots))
    devices = columns.device_count[slots]
    overbooked = columns.device_free[slots].min(axis=1, initial=0)
    needs.append(_Need("gpu", 0, overbooked, devices * GPU_WHOLE))
    return needs


def _gpus(snapshot: Snapshot, request: Resources, slots: Ints) -> _Need:
    """Devices of the models that the request allows."""
    columns = snapshot.columns
    free, models = columns.device_free[slots], columns.device_model[slots]
    wanted = request.gpu_models
    allowed = [
        not wanted or any(is_model(model, each) for each in wanted) for model in columns.models
    ]
    usable = np.array([*allowed, False], np.bool_)[models]  # the last is for -1: no device
    count = usable.sum(axis=1)
    name = f"gpu ({' or '.join(wanted)})" if wanted else "gpu"
    if request.gpu_milli >= GPU_WHOLE:
        whole = (usable & (free == GPU_WHOLE)).sum(axis=1)
        return _Need(name, request.gpu_milli, whole * GPU_WHOLE, count * GPU_WHOLE)
    largest = np.where(usable, free, 0).max(axis=1, initial=0)
    one = np.minimum(count, 1) * GPU_WHOLE
    return _Need(name, request.gpu_milli, largest, one, ReasonCode.NO_SINGLE_DEVICE)


def _what_is_lacking(
    snapshot: Snapshot, needs: Sequence[_Need | _Rule], slots: Ints
) -> tuple[Ints, Floats]:
    """A number for each agent that says what it lacks, and how far it is from lacking nothing."""
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
        kind = kind * 3 + short + (short & need.beyond())
        if kind.max(initial=0) > 2**60:  # so many kinds cannot be; number them anew
            kind = np.unique(kind, return_inverse=True)[1]
    return kind, distance


def reason_dict(each: Reason) -> dict[str, Any]:
    """A reason as JSON can hold it."""
    return {
        "code": each.code,
        "kind": each.kind,
        "sentence": each.sentence(),
        "remedy": each.remedy(),
        "numbers": dict(each.numbers),
    }
