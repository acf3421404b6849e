"""The board: what placement looks at, derived from the mirror and kept current by deltas.

For each scaling group a snapshot of its agents and the queue of its PENDING sessions; for each
(shape, agent) how many kernels run and which are held ahead (DESIGN section 11, "Backlog"); for
each job how long its kernels take. Nothing here is stored: it is rebuilt from the mirror.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from muster.core.ids import AgentId, JobId, SessionId
from muster.core.resources import DeviceShare, Resources
from muster.core.specs import SessionType
from muster.core.states import JOB_TABLE, AgentStatus, KernelStatus, SessionStatus
from muster.scheduling.backlog import backlog_depth
from muster.scheduling.policy import Policy
from muster.scheduling.snapshot import Snapshot
from muster.scheduling.workload import SessionWorkload
from muster.store.live import LedgerKey, Live
from muster.store.records import Agent, Allocation, Job, Kernel, Session

_NONE: frozenset[AgentId] = frozenset()  # an empty set takes 216 bytes, and most are
_LEAST_YOUTH_S = 0.5  # what a machine reports that is busy elsewhere may be so old
_SMOOTHING = 0.2  # weight of the newest duration in the running mean


@dataclass(slots=True)
class Shape:
    """Kernels of one shape on one agent: those that run, with when each got its room, and those in
    its backlog; the oldest first."""

    running: dict[LedgerKey, float] = field(default_factory=dict)
    ahead: dict[LedgerKey, Allocation] = field(default_factory=dict)

    def younger_than(self, moment: float) -> int:
        """How many of those that run got their room after that moment."""
        return sum(1 for _ in takewhile(lambda at: at > moment, reversed(self.running.values())))


@dataclass(slots=True)
class GroupBoard:
    """One scaling group. ``stirred`` says that something changed that placement should see."""

    snapshot: Snapshot
    policy: Policy
    pending: dict[SessionId, tuple[Session, SessionWorkload]] = field(default_factory=dict)
    shapes: dict[str, dict[AgentId, Shape]] = field(default_factory=dict)
    stirred: bool = True


class Board:
    """Follows the mirror; the unit of work tells it of the ledger, the engine of sessions."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self.groups: dict[str, GroupBoard] = {}
        self.candidates: dict[JobId, int] = {}  # PENDING sessions of a job
        self.mean_run_s: dict[JobId, float] = {}
        for name in live.groups:
            self.group_changed(name)
        for agent in live.agents.values():
            self.agent_changed(agent)
        for row in live.ledger.values():
            self.held(row)
            if row.charged:
                self._group_of(row).snapshot.take(
                    row.agent_id, row.resources, row.shares, force=True
                )
        for session in live.sessions.values():
            self.session_changed(session)

    def _group_of(self, row: Allocation) -> GroupBoard:
        return self.groups[self._live.agents[row.agent_id].group]

    # -- groups, agents, queue -----------------------------------------------------------------

    def group_changed(self, name: str) -> None:
        """A group is new, or has another policy."""
        policy = Policy.of(self._live.groups[name])
        board = self.groups.get(name)
        if board is None:
            self.groups[name] = GroupBoard(Snapshot(name), policy)
        else:
            board.policy = policy
            board.stirred = True

    def agent_changed(self, agent: Agent) -> None:
        board = self.groups[agent.group]
        if agent.status is AgentStatus.REMOVED:
            board.snapshot.remove_agent(agent.id)
        else:
            board.snapshot.upsert_agent(
                agent.id,
                agent.name,
                agent.capacity,
                agent.devices,
                accepting=agent.status is AgentStatus.ALIVE and agent.connected,
                status=agent.status if agent.connected else "not connected",
            )
        board.stirred = True

    def session_changed(self, session: Session) -> None:
        """Keep the queue: a PENDING session is in it, any other is not."""
        board = self.groups[session.group]
        queued = session.id in board.pending
        if (session.status is SessionStatus.PENDING) == queued:
            return
        job = session.job
        if queued:
            del board.pending[session.id]
        else:
            board.pending[session.id] = (session, workload(session))
            board.stirred = True
        if job is not None:
            count = self.candidates.pop(job.id, 0) + (-1 if queued else 1)
            if count:
                self.candidates[job.id] = count

    def job_ended(self, job: Job) -> None:
        self.mean_run_s.pop(job.id, None)

    # -- the ledger (store.unit.LedgerWatch) ---------------------------------------------------

    def held(self, row: Allocation) -> None:
        agents = self._group_of(row).shapes.setdefault(row.resources.shape, {})
        shape = agents.setdefault(row.agent_id, Shape())
        if row.charged:
            shape.running[row.kernel_id, row.generation] = row.since
        else:
            shape.ahead[row.kernel_id, row.generation] = row

    def charged(self, row: Allocation, before: tuple[DeviceShare, ...] | None, now: float) -> None:
        group = self._group_of(row)
        if before is None:
            shape = group.shapes[row.resources.shape][row.agent_id]
            del shape.ahead[row.kernel_id, row.generation]
            shape.running[row.kernel_id, row.generation] = now
        else:
            group.snapshot.give_back(row.agent_id, row.resources, before)
        # What the agent says is a fact, even where it is more than there was room for.
        group.snapshot.take(row.agent_id, row.resources, row.shares, force=True)

    def released(self, row: Allocation, now: float) -> None:
        group = self._group_of(row)
        agents = group.shapes[row.resources.shape]
        shape = agents[row.agent_id]
        if row.charged:
            del shape.running[row.kernel_id, row.generation]
            group.snapshot.give_back(row.agent_id, row.resources, row.shares)
        else:
            del shape.ahead[row.kernel_id, row.generation]
        if not shape.running and not shape.ahead:
            del agents[row.agent_id]
            if not agents:
                del group.shapes[row.resources.shape]
        group.stirred = True

    # -- the backlog ---------------------------------------------------------------------------

    def room_ahead(
        self, job: Job, resources: Resources, now: float
    ) -> Iterator[tuple[AgentId, int]]:
        """Agents that may hold more of this job's kernels ahead, and how many each.

        Only young kernels count, which have not yet run for the window: whatever the mean says,
        the others are long ones.
        """
        mean_s = self.mean_run_s.get(job.id)
        window_s = self._live.groups[job.group].backlog_window
        if mean_s is None or mean_s > window_s:
            return
        for agent_id, shape in self.groups[job.group].shapes.get(resources.shape, {}).items():
            young = shape.younger_than(now - max(window_s, _LEAST_YOUTH_S))
            room = backlog_depth(window_s, mean_s, young) - len(shape.ahead)
            agent = self._live.agents[agent_id]
            if room > 0 and agent.status is AgentStatus.ALIVE and agent.connected:
                yield agent_id, room

    # -- durations -----------------------------------------------------------------------------

    def kernel_ended(self, kernel: Kernel) -> None:
        """Learn how long kernels of its job run."""
        job = kernel.session.job
        if (
            job is None
            or job.status in JOB_TABLE.terminal
            or kernel.started_at is None
            or kernel.ended_at is None
            or kernel.status is not KernelStatus.TERMINATED
        ):
            return
        took_s = max(kernel.ended_at - kernel.started_at, 0.0)
        mean_s = self.mean_run_s.get(job.id, took_s)
        self.mean_run_s[job.id] = mean_s + _SMOOTHING * (took_s - mean_s)


def workload(session: Session) -> SessionWorkload:
    """A session as placement sees it."""
    return SessionWorkload(
        id=session.id,
        owner=session.owner,
        group=session.group,
        priority=session.priority,
        submitted_at=session.created_at,
        kernels=tuple([kernel.resources for kernel in session.kernels]),
        failed_agents=frozenset(session.failed_agents) if session.failed_agents else _NONE,
    )


def may_wait_ahead(session: Session) -> bool:
    """Whether an agent may hold the session in its backlog: short batch work of one kernel that
    needs nothing but its allocation."""
    return (
        session.job is not None
        and len(session.kernels) == 1
        and session.type is SessionType.BATCH
        and not session.kernels[0].process.ports
    )
