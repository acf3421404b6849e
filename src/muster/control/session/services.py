"""Services: kernels by which an agent checks, resets or reboots its own machine (design: Machine
health).

A service is a session that no pass places: it is begun on the machine that it is about, takes its
room at once and for itself alone, and ends where it cannot start.
"""

from collections.abc import Collection

from muster.control.engine.handler import TransitionStatus
from muster.control.engine.work import Move, Work
from muster.control.session.lifecycle import SessionLifecycle
from muster.core.health.service import SERVICE_OWNER, Service
from muster.core.reasons import Reason
from muster.core.reasons.of_agents import AgentNotAlive
from muster.core.reasons.of_health import HealthWaitsEmpty
from muster.core.resources import GPU_WHOLE, DeviceShare
from muster.core.specs import SessionType
from muster.core.specs.service import service_spec
from muster.core.states import AgentStatus, KernelStatus, SessionStatus
from muster.store.load import spec_processes
from muster.store.records import Agent, Kernel, Session
from muster.store.spec_columns import spec_size

_PLACED = TransitionStatus(SessionStatus.SCHEDULED, TransitionStatus(KernelStatus.SCHEDULED))
_WAITING = frozenset({SessionStatus.PENDING})
_PRIORITY = 100


class Services:
    """Begins and stops services."""

    def __init__(self, sessions: SessionLifecycle) -> None:
        self._sessions = sessions

    def begin(self, work: Work, agent: Agent, service: Service, phase: str) -> Session | Reason:
        """Begin a service on an agent, whether the agent takes work or not.

        Devices that the agent does not have (any more) are asked for and not charged.

        Returns:
            The session, which is SCHEDULED; or why it cannot begin now: the agent is away, or what
            it would have to itself is in use. Nothing was changed then.
        """
        refused = self.refusal(work, agent, service)
        if refused is not None:
            return refused
        wanted = _wanted(agent, service)
        session, kernel = self._made(work, agent, service, len(wanted))
        work.unit.add(session)
        work.unit.add(kernel)
        work.mark(session)
        kernel.agent_id = agent.id
        kernel.shares = tuple(DeviceShare(index, GPU_WHOLE) for index in wanted)
        work.unit.allocate(kernel, agent, kernel.shares, charged=True)
        self._sessions.move(work, [session], _WAITING, _PLACED, Move(phase))
        return session

    def refusal(self, work: Work, agent: Agent, service: Service) -> Reason | None:
        """Why a service cannot begin now; None if it can."""
        if agent.status is not AgentStatus.ALIVE or not agent.connected:
            status = "not connected" if agent.status is AgentStatus.ALIVE else agent.status.lower()
            return AgentNotAlive(status=status)
        users = self._users(work, agent, service, _wanted(agent, service))
        if users:
            return HealthWaitsEmpty(agent=agent.name, kernels=users)
        return None

    def stop(self, work: Work, session: Session, phase: str, why: Reason) -> None:
        """Stop a service, whatever it has come to; nothing happens to one that ends or has
        ended."""
        self._sessions.terminate(work, [session], phase, why)

    def _users(self, work: Work, agent: Agent, service: Service, wanted: Collection[int]) -> int:
        """How many kernels hold what the service would have to itself; kernels of an earlier try
        that are not proven gone are among them."""
        rows = work.live.allocations_on.get(agent.id, {}).values()
        if service.is_whole or agent.in_service:
            return len(rows)
        return sum(any(share.index in wanted for share in row.shares) for row in rows)

    def _made(
        self, work: Work, agent: Agent, service: Service, gpus: int
    ) -> tuple[Session, Kernel]:
        spec = work.live.shared(service_spec(service, agent.group, gpus))
        session = Session(
            id=work.ids.session(),
            job=None,
            name=None,
            type=SessionType.BATCH,
            owner=SERVICE_OWNER,
            group=agent.group,
            priority=_PRIORITY,
            spec=spec,
            spec_bytes=spec_size(spec),
            status=SessionStatus.PENDING,
            status_changed_at=work.now,
            created_at=work.now,
            queued_at=work.now,
        )
        ((process, resources),) = spec_processes(spec)
        kernel = Kernel(
            id=work.ids.kernel(),
            session=session,
            index=0,
            process=process,
            resources=resources,
            status=KernelStatus.PENDING,
            status_changed_at=work.now,
        )
        session.kernels = [kernel]
        return session, kernel


def _wanted(agent: Agent, service: Service) -> list[int]:
    """The indexes of the devices that a service has to itself."""
    has = [device.index for device in agent.devices]
    return has if service.is_whole else [index for index in has if index in service.devices]
