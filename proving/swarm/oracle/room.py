"""The room of a scaling group and the order of its queue: simple sums over what was committed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from muster.core.ids import AgentId, KernelId
from muster.core.resources import GPU_WHOLE, Resources
from muster.core.specs import JobSpec, ScalingGroup, SessionSpec
from muster.core.specs.placement import ANYWHERE
from muster.core.specs.quota import UNLIMITED
from muster.core.states import AgentStatus, SessionStatus
from muster.scheduling.accounting.usage import Scope, scopes
from muster.store.live import Live
from muster.store.records import Agent, Session

NOTICED_S = 0.1
"""How much later than a moment control may look at what it changes."""


def order(session: Session) -> tuple[int, float, str]:
    """The key by which the sessions of a queue are ordered, where no session starves."""
    return -session.priority, session.created_at, session.id


def waiting_in(live: Live, group: ScalingGroup) -> list[Session]:
    """The sessions that wait in the queue, the first one first."""
    sessions = [
        session
        for session in live.sessions.values()
        if session.status is SessionStatus.PENDING
        and session.group == group.name
        and not any(kernel.id in live.allocations_of for kernel in session.kernels)
    ]
    return sorted(sessions, key=order)


def spec_of(session: Session) -> JobSpec | SessionSpec:
    """The spec with which somebody handed it in, or its job."""
    spec = session.spec or (session.job.spec if session.job is not None else None)
    assert spec is not None, "a session has a job or a spec of its own"
    return spec


def lacks_room_alone(live: Live, session: Session, now: float) -> bool:
    """Whether it is plain that nothing but a lack of room keeps the session waiting: it may lie
    anywhere, it depends on no other, its start time has come, and its owner has no quota."""
    spec = spec_of(session)
    has_come = spec.not_before is None or spec.not_before <= now
    is_free = has_come and not spec.after and spec.placement == ANYWHERE
    return is_free and not any(bounds_on(live, session))


def requested(session: Session, resource: str) -> int:
    """The amount for which the kernels of the session ask together."""
    return sum(kernel.resources.as_dict().get(resource, 0) for kernel in session.kernels)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits on what an owner may hold: amounts by resource, and the number of sessions."""

    amounts: Mapping[str, int]
    sessions: int | None


def bounds_of(live: Live, scope: Scope) -> Bounds | None:
    """The limits of an owner: each is the owner's own or, without one, the nearest of everybody;
    None if there is none."""
    level, name = scope
    parts = name.split("/")
    names = ["/".join([*parts[:own], *"*" * (len(parts) - own)]) for own in range(len(parts) + 1)]
    amounts: dict[str, int] = {}
    sessions: int | None = None
    for each in names:  # the nearest comes last
        quota = live.quotas.get((level, each))
        if quota is not None:
            amounts |= quota.limits.said
            sessions = sessions if quota.sessions is None else quota.sessions
    bound = {resource: most for resource, most in amounts.items() if most != UNLIMITED}
    sessions = None if sessions == UNLIMITED else sessions
    return Bounds(bound, sessions) if bound or sessions is not None else None


def bounds_on(live: Live, session: Session) -> Iterable[tuple[Scope, Bounds]]:
    """The limits of the session's owner, by whom they are."""
    for scope in scopes(session.owner):
        bounds = bounds_of(live, scope)
        if bounds is not None:
            yield scope, bounds


def may_come_back(agent: Agent) -> bool:
    """Whether the agent takes work, or would if its connection were not broken just now."""
    is_open = agent.barred is None and not agent.disk_full and not agent.withheld
    is_well = not agent.ill and not agent.in_service
    return agent.status is AgentStatus.ALIVE and is_open and is_well


def is_service(live: Live, kernel: KernelId) -> bool:
    """Whether a kernel with a row of the ledger is of a service, which asks for no agent that takes
    work, and has no place in a queue."""
    record = live.kernels.get(kernel)
    return record is not None and record.session.service is not None


@dataclass(slots=True)
class Room:
    """The free processors of an agent, the free part of each of its devices, in thousandths, its
    free memory, and the number of kernels that it may hold besides those that it holds."""

    cpu_milli: int
    memory_bytes: int
    devices: dict[int, int]
    slots: int

    @classmethod
    def of(cls, agent: Agent, group: ScalingGroup) -> "Room":
        """All that the agent has."""
        has, devices = agent.capacity, {device.index: GPU_WHOLE for device in agent.devices}
        return cls(has.cpu_milli, has.memory_bytes, devices, group.kernels_per_agent)

    def holds(self, request: Resources) -> int:
        """How many kernels find room that ask for so much each."""
        return min(max(0, self.slots), self.holds_by_amounts(request))

    def holds_by_amounts(self, request: Resources) -> int:
        """How many would, if an agent could hold any number of kernels."""
        most = max(0, self.cpu_milli) // request.cpu_milli
        if request.memory_bytes:
            most = min(most, max(0, self.memory_bytes) // request.memory_bytes)
        return min(most, self.holds_devices_of(request)) if request.gpu_milli else most

    def holds_devices_of(self, request: Resources) -> int:
        """How many kernels find the devices that they ask for."""
        if request.gpu_milli < GPU_WHOLE:
            return sum(max(0, left) // request.gpu_milli for left in self.devices.values())
        whole = sum(left == GPU_WHOLE for left in self.devices.values())
        return whole // request.gpu_devices


def free_room(
    live: Live, agents: Iterable[Agent], *, less: Iterable[Session] = ()
) -> Mapping[AgentId, Room]:
    """The free room by agent; rows of the sessions ``less`` do not count."""
    skipped = {kernel.id for session in less for kernel in session.kernels}
    free = {agent.id: Room.of(agent, live.groups[agent.group]) for agent in agents}
    for row in live.ledger.values():
        if row.agent_id in free and row.charged and row.kernel_id not in skipped:
            room = free[row.agent_id]
            room.cpu_milli -= row.resources.cpu_milli
            room.memory_bytes -= row.resources.memory_bytes
            room.slots -= 1
            for share in row.shares:
                room.devices[share.index] -= share.milli
    return free


def fits(session: Session, free: Mapping[AgentId, Room]) -> bool:
    """Whether there is room for all of its kernels, which are alike."""
    return _fits(session, free, Room.holds)


def fits_by_amounts(session: Session, free: Mapping[AgentId, Room]) -> bool:
    """Whether there would be, if an agent could hold any number of kernels."""
    return _fits(session, free, Room.holds_by_amounts)


def _fits(
    session: Session, free: Mapping[AgentId, Room], holds: Callable[[Room, Resources], int]
) -> bool:
    unfit, request = {agent for agent, _ in session.unfit}, session.kernels[0].resources
    room = sum(holds(left, request) for agent, left in free.items() if agent not in unfit)
    return room >= len(session.kernels)
