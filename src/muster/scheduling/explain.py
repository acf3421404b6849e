"""Why a session does not start, agent by agent: the answer of `muster why`."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np

from muster.core.ids import SessionId
from muster.core.reasons import Reason, ReasonCode, lacks, reason
from muster.core.resources import GPU_WHOLE, Resources
from muster.scheduling.columns import Flags, Floats, Ints
from muster.scheduling.outcome import Placed, Refused
from muster.scheduling.placement import PlacementPass
from muster.scheduling.policy import Policy
from muster.scheduling.snapshot import Snapshot
from muster.scheduling.statement import Statement
from muster.scheduling.workload import SessionWorkload, by_request

MAX_GROUPS = 20
_EXAMPLES = 3


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
            "lacks": [_reason_dict(each) for each in self.lacks],
        }


@dataclass(frozen=True, slots=True)
class RequestExplanation:
    """What the agents have for one of the session's distinct requests.

    Args:
        request: what each of ``kernels`` kernels asks for.
        groups: the largest first, at most ``MAX_GROUPS``.
        other_agents: how many agents are in no group of these.
    """

    request: Resources
    kernels: int
    groups: tuple[AgentGroup, ...]
    other_agents: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "request": self.request.as_dict(),
            "asks": self.request.describe(),
            "kernels": self.kernels,
            "groups": [group.as_dict() for group in self.groups],
            "other_agents": self.other_agents,
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a placement pass would say of a session now, and why.

    Args:
        starts: whether it would start.
        reasons: why not; empty if it would.
        position: its place in the order of the queue, from 1.
        queue: how many sessions wait.
        agents: how many were looked at: all of the group.
        kernels: how many kernels it has.
        kernels_fit: how many of them would find room together, once those ahead have started.
        requests: the most demanding first, seen after those ahead have started.
    """

    session: SessionId
    group: str
    starts: bool
    reasons: tuple[Reason, ...]
    position: int
    queue: int
    agents: int
    kernels: int
    kernels_fit: int
    requests: tuple[RequestExplanation, ...]

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON can hold it, sentences included."""
        return {
            "session": self.session,
            "group": self.group,
            "starts": self.starts,
            "reasons": [_reason_dict(each) for each in self.reasons],
            "position": self.position,
            "queue": self.queue,
            "agents": self.agents,
            "kernels": self.kernels,
            "kernels_fit": self.kernels_fit,
            "requests": [each.as_dict() for each in self.requests],
        }


def explain(
    session: SessionWorkload,
    snapshot: Snapshot,
    policy: Policy,
    queue: Sequence[SessionWorkload],
    now: float,
) -> Explanation:
    """Explain what ``place`` would decide about ``session``; the same code decides here.

    Those ahead of it are placed first, and all is rolled back: the snapshot stays as it is.

    Args:
        queue: the group's waiting sessions; ``session`` is counted in if it is not among them.
        now: seconds since the epoch.

    Raises:
        MusterError: a plug-in answers nonsense.
    """
    if all(other.id != session.id for other in queue):
        queue = [*queue, session]
    with Statement(snapshot) as statement:
        placement = PlacementPass(statement, policy, now)
        ahead = takewhile(lambda other: other.id != session.id, placement.order(queue))
        position = 1 + sum(1 for _ in placement.decide(ahead))
        requests = tuple(
            _explain_request(snapshot, request, len(indexes))
            for request, indexes in by_request(session.kernels)
        )
        kernels_fit = placement.room(session)
        (outcome,) = placement.decide([session])
    return Explanation(
        session=session.id,
        group=snapshot.group,
        starts=isinstance(outcome, Placed),
        reasons=outcome.reasons if isinstance(outcome, Refused) else (),
        position=position,
        queue=len(queue),
        agents=len(snapshot),
        kernels=len(session.kernels),
        kernels_fit=kernels_fit,
        requests=requests,
    )


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

    def reason(self, agent: int) -> Reason:
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


def _explain_request(snapshot: Snapshot, request: Resources, kernels: int) -> RequestExplanation:
    slots = np.flatnonzero(snapshot.columns.present)
    needs = [need for need in _needs(snapshot, request, slots) if need.short().any()]
    kind, distance = _what_is_lacking(snapshot, needs, slots)
    _, kind, counts = np.unique(kind, return_inverse=True, return_counts=True)
    largest_first = np.argsort(-counts, kind="stable")[:MAX_GROUPS]
    groups = []
    for each in largest_first.tolist():
        members = np.flatnonzero(kind == each)
        nearest = int(members[distance[members].argmin()])
        facts = snapshot.facts(int(slots[nearest]))
        lacking = [need.reason(nearest) for need in needs if need.short()[nearest]]
        if not facts.accepting:
            lacking.insert(0, reason(ReasonCode.AGENT_NOT_ALIVE, status=facts.status))
        examples = [snapshot.facts(slot).name for slot in slots[members[:_EXAMPLES]].tolist()]
        groups.append(AgentGroup(members.size, tuple(examples), facts.name, tuple(lacking)))
    shown = int(counts[largest_first].sum())
    return RequestExplanation(request, kernels, tuple(groups), slots.size - shown)


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
    devices = columns.device_count[slots]
    if gpu_milli >= GPU_WHOLE:
        whole = columns.whole_free[slots]
        needs.append(_Need("gpu", gpu_milli, whole * GPU_WHOLE, devices * GPU_WHOLE))
    elif gpu_milli:
        largest = columns.largest_free[slots]
        one = np.minimum(devices, 1) * GPU_WHOLE
        needs.append(_Need("gpu", gpu_milli, largest, one, ReasonCode.NO_SINGLE_DEVICE))
    overbooked = columns.device_free[slots].min(axis=1, initial=0)
    needs.append(_Need("gpu", 0, overbooked, devices * GPU_WHOLE))
    return needs


def _what_is_lacking(
    snapshot: Snapshot, needs: Sequence[_Need], slots: Ints
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
        missing = (need.requested - need.free) / max(need.requested, 1)
        distance += np.where(short, missing, 0.0)
        kind = kind * 3 + short + (short & need.beyond())
        if kind.max(initial=0) > 2**60:  # so many kinds cannot be; number them anew
            kind = np.unique(kind, return_inverse=True)[1]
    return kind, distance


def _reason_dict(each: Reason) -> dict[str, Any]:
    return {
        "code": each.code,
        "kind": each.kind,
        "sentence": each.sentence(),
        "remedy": each.remedy(),
        "numbers": dict(each.numbers),
    }
