"""A waiting or running session as placement sees it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import NamedTuple, TypeAlias

from muster.core.ids import AgentId, SessionId
from muster.core.owner import Owner
from muster.core.reasons import Reason
from muster.core.resources import DeviceShare, Resources
from muster.core.specs import Dependency, PlacementSpec, SessionType
from muster.core.specs.placement import ANYWHERE

SetKey: TypeAlias = tuple[Owner | None, str]
"""An owner and the name of a set of its sessions (``PlacementSpec.set``); or None, and the kernels
of whichever owner that listen on a fixed port, or others that have it."""


def users_of(port: int) -> SetKey:
    """The set of the kernels that listen on this port by themselves."""
    return None, f"port {port}"


def others_on(port: int) -> SetKey:
    """The set of the programs that have this port and are no kernels of the agent that told so."""
    return None, f"port {port} of others"


class InGroup(NamedTuple):
    """A resource in one group."""

    group: str
    resource: str


class OfModels(NamedTuple):
    """GPUs of one of these models, in one group; without a model they may be of any."""

    group: str
    models: tuple[str, ...]


Part: TypeAlias = InGroup | OfModels
"""A part of what a session asks for, by which quotas count single groups and models."""
NO_PARTS: Mapping[Part, int] = {}


@dataclass(frozen=True, slots=True)
class KernelPlacement:
    """The place of one kernel: its agent, and its devices there."""

    agent_id: AgentId
    shares: tuple[DeviceShare, ...] = ()


@dataclass(frozen=True)
class WorkloadClass:
    """All properties of a session on which a decision may depend, except its age and id. Sessions
    of equal class are decided about together.

    Args:
        group: the name of the scaling group.
        priority: larger goes first.
        kernels: the request of each kernel, by index.
        placement: where the kernels may go.
        failed_agents: agents on which the session failed before; they rank last.
        unfit_agents: the failed agents that reported that they cannot run the session; it is not
            placed on them.
        duration_s: the longest run once started, if known.
        not_before: the earliest start, in seconds since the epoch.
        after: its dependencies.
        port: the port on which its only kernel listens by itself: no two that do are placed on one
            agent.
        held: why sessions of the class are kept from beginning, if somebody does.
        preemptible: whether work of higher priority may displace it, where its group allows that.
    """

    owner: Owner
    group: str
    priority: int
    kernels: tuple[Resources, ...]
    type: SessionType = SessionType.BATCH
    placement: PlacementSpec = ANYWHERE
    failed_agents: frozenset[AgentId] = frozenset()
    unfit_agents: frozenset[AgentId] = frozenset()
    duration_s: float | None = None
    not_before: float | None = None
    after: tuple[Dependency, ...] = ()
    preemptible: bool = True
    port: int | None = None
    held: Reason | None = None

    @cached_property
    def _hash(self) -> int:
        return hash((self.owner, self.priority, self.kernels, self.placement, self.failed_agents))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def sets(self) -> tuple[SetKey, ...]:
        """The sets in which its kernels are counted on their agents."""
        keys: list[SetKey] = []
        if self.placement.set is not None:
            keys.append((self.owner, self.placement.set))
        if self.port is not None:
            keys.append(users_of(self.port))
        return tuple(keys)

    @cached_property
    def requests(self) -> tuple[tuple[Resources, tuple[int, ...]], ...]:
        """The distinct requests, each with the indexes of the kernels that make it.

        The most demanding come first, so that a request that is hard to place does not find its
        room broken up.
        """
        indexes_of: dict[Resources, list[int]] = {}
        last: Resources | None = None
        indexes: list[int] = []
        for index, request in enumerate(self.kernels):
            if request is not last:  # hashing is costly, and gangs repeat one object
                last, indexes = request, indexes_of.setdefault(request, [])
            indexes.append(index)
        ordered = sorted(indexes_of.items(), key=lambda item: _size(item[0]), reverse=True)
        return tuple((request, tuple(members)) for request, members in ordered)

    @cached_property
    def uncounted(self) -> "WorkloadClass":
        """The class with requests that do not count toward the number of kernels that an agent may
        hold."""
        kernels: list[Resources] = []
        last = made = None
        for each in self.kernels:  # gangs repeat one object
            if made is None or each is not last:
                last, made = each, replace(each, kernels=0)
            kernels.append(made)
        return replace(self, kernels=tuple(kernels))

    @cached_property
    def total(self) -> Mapping[str, int]:
        """The sum of all kernels' requests, by name of the resource, in canonical units."""
        amounts: dict[str, int] = {}
        for request, indexes in self.requests:
            for name, amount in request.as_dict().items():
                amounts[name] = amounts.get(name, 0) + amount * len(indexes)
        return amounts

    @cached_property
    def parts(self) -> Mapping[Part, int]:
        """The same amounts by the parts that quotas count."""
        parts: dict[Part, int] = {
            InGroup(self.group, name): amount for name, amount in self.total.items()
        }
        for request, indexes in self.requests:
            if request.gpu_milli:
                part = OfModels(self.group, request.gpu_models)
                parts[part] = parts.get(part, 0) + request.gpu_milli * len(indexes)
        return parts


@dataclass(frozen=True, slots=True)
class SessionWorkload:
    """A session that waits for its place; its kernels start together or not at all.

    Args:
        submitted_at: seconds since the epoch.
        workload: its class, one object for all that are equal (see ``Classes``).
    """

    id: SessionId
    submitted_at: float
    workload: WorkloadClass


class Classes:
    """Makes equal classes one object, so that equal classes are found by their identity."""

    def __init__(self) -> None:
        self._known: dict[WorkloadClass, WorkloadClass] = {}

    def one(self, workload: WorkloadClass) -> WorkloadClass:
        return self._known.setdefault(workload, workload)


@dataclass(frozen=True, slots=True, eq=False)
class RunningSession:
    """A session that holds its place.

    Args:
        kernels: the place of each kernel, by index.
        started_at: when it was placed, in seconds since the epoch.
        ends_at: its latest end, if known.
    """

    id: SessionId
    workload: WorkloadClass
    kernels: tuple[KernelPlacement, ...]
    started_at: float
    ends_at: float | None = None


class DependencyState(Enum):
    """How far a job, a session or a deployment on which other work depends has come."""

    MISSING = "missing"
    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    ENDED_OTHERWISE = "ended otherwise"
    NOT_HEALTHY = "not healthy"  # a deployment
    HEALTHY = "healthy"  # a deployment


@dataclass(frozen=True, slots=True)
class DependencyProgress:
    """A DependencyState, and the time since which it holds, in seconds since the epoch."""

    state: DependencyState
    since: float


def no_replicas_are_known(deployment: str) -> tuple[int, int]:
    """The ``replicas_of`` of a pass in which no deployment is known."""
    return 0, 0


def _size(request: Resources) -> tuple[int, int, int, int, tuple[tuple[str, int], ...]]:
    return (
        request.gpu_milli,
        request.cpu_milli,
        request.memory_bytes,
        request.disk_bytes,
        request.extra,
    )
