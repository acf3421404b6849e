"""The state of a scaling group at a moment when nothing is on its way."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from muster.core.ids import AgentId, KernelId
from muster.core.reasons import ReasonCode
from muster.core.resources import GPU_WHOLE
from muster.core.specs import ScalingGroup
from muster.core.specs.group import QueuePolicy
from muster.core.states import AgentStatus
from muster.scheduling.accounting.usage import Scope, scopes
from muster.store.live import Live
from muster.store.records import Agent, Allocation, LedgerKey, Session
from proving.swarm.oracle.room import (
    NOTICED_S,
    Room,
    fits,
    fits_by_amounts,
    free_room,
    may_come_back,
    requested,
    spec_of,
    waiting_in,
)


@dataclass(frozen=True)
class Standing:
    """A scaling group while nothing is on its way: its agents, its queue, and who holds what.

    Args:
        now: by the controller's clock, in seconds since the epoch.
        session_of: the session of each kernel that there was.
        displacing: priorities of the sessions for which others are leaving.
        ready: kernels that their agents hold ready at a barrier.
        quiet: agents that have no messages on their way.
    """

    live: Live
    spec: ScalingGroup
    now: float
    session_of: Mapping[KernelId, Session]
    displacing: Set[int]
    ready: Set[LedgerKey]
    quiet: Set[AgentId]

    @cached_property
    def agents(self) -> Sequence[Agent]:
        return [
            each
            for each in self.live.agents.values()
            if each.group == self.spec.name and each.status is not AgentStatus.REMOVED
        ]

    @cached_property
    def open(self) -> Sequence[Agent]:
        """The agents that take new work."""
        return [each for each in self.agents if each.connected and may_come_back(each)]

    @cached_property
    def waiting(self) -> Sequence[Session]:
        """The sessions of the queue, the first one first."""
        return waiting_in(self.live, self.spec)

    def begins_now(self, session: Session) -> bool:
        """Whether the start time of a waiting session comes at this moment."""
        return abs(self.now - (spec_of(session).not_before or 0.0)) <= NOTICED_S

    @cached_property
    def free(self) -> Mapping[AgentId, Room]:
        """The free room of all agents."""
        return free_room(self.live, self.agents)

    @property
    def may_keep_room(self) -> bool:
        """Whether room that is free may be kept for sessions that lack it."""
        return self.spec.queue is QueuePolicy.BACKFILL or bool(self.displacing)

    def has_room(self, session: Session) -> bool:
        """Whether there is free room for the session, whoever may have it."""
        return fits(session, {agent.id: self.free[agent.id] for agent in self.open})

    def lacks_amounts(self, session: Session) -> bool:
        """Whether there is no room, and there might be none if an agent could hold any number of
        kernels, because what is free may be kept for others."""
        return not self.has_room(session) and (self.may_keep_room or not self.has_amounts(session))

    def has_amounts(self, session: Session) -> bool:
        """Whether there would be free room, if an agent could hold any number of kernels."""
        return fits_by_amounts(session, {agent.id: self.free[agent.id] for agent in self.open})

    def could_hold(self, session: Session, agents: Iterable[Agent]) -> bool:
        """Whether these agents could hold the session if they were empty."""
        return fits(session, {agent.id: Room.of(agent, self.spec) for agent in agents})

    def places(self, session: Session) -> int:
        """How many kernels like the session's find free room."""
        request = session.kernels[0].resources
        fit = fit_for(session, self.open)
        return sum(self.free[agent.id].holds(request) for agent in fit)

    def is_ahead(self, id_: object, session: Session) -> bool:
        """Whether the session named so waits, and comes before the other one."""
        ids = [each.id for each in self.waiting]
        return id_ in ids and (
            session.id not in ids or ids.index(session.id) > ids.index(str(id_))  # type: ignore[arg-type]
        )

    def used(self, scope: Scope, resource: str) -> int:
        """The usage of an owner: a session counts whole while it holds any charged room."""
        sessions = {
            session.id: session
            for row in self.live.ledger.values()
            if row.charged
            and (session := self.session_of.get(row.kernel_id)) is not None
            and scope in scopes(session.owner)
        }
        if resource == "sessions":
            return len(sessions)
        return sum(requested(each, resource) for each in sessions.values())

    def rows_of(self, session: Session) -> Iterator[Allocation]:
        """The rows of the ledger of the session or, where it has a job, of all work of that."""
        for row in self.live.ledger.values():
            holder = self.session_of.get(row.kernel_id)
            if holder is not None and work_of(holder) == work_of(session):
                yield row

    def named(self, name: object) -> Collection[Agent]:
        """The agents of this name."""
        return [each for each in self.agents if each.name == name]

    def shortfalls(self, agent: Agent, session: Session) -> frozenset[ReasonCode]:
        """The reasons why the agent cannot take a kernel of the session now."""
        request, room = session.kernels[0].resources, self.free[agent.id]
        whole = Room.of(agent, self.spec)
        found = set[ReasonCode]()
        if agent not in self.open:
            found.add(ReasonCode.AGENT_NOT_ALIVE)
        if agent not in fit_for(session, [agent]):
            found.add(ReasonCode.AGENT_UNFIT)
        for asked, free, capacity in (
            (request.cpu_milli, room.cpu_milli, whole.cpu_milli),
            (request.memory_bytes, room.memory_bytes, whole.memory_bytes),
            (1, room.slots, whole.slots),
        ):
            if asked > free:
                above = asked > capacity
                found.add(ReasonCode.LACKS_CAPACITY if above else ReasonCode.LACKS_FREE)
        if request.gpu_milli and not room.holds_devices_of(request):
            if not whole.holds_devices_of(request):
                found.add(ReasonCode.LACKS_CAPACITY)
            elif request.gpu_milli < GPU_WHOLE:
                found.add(ReasonCode.NO_SINGLE_DEVICE)
            else:
                found.add(ReasonCode.LACKS_FREE)
        return frozenset(found)


def fit_for(session: Session, agents: Iterable[Agent]) -> Sequence[Agent]:
    """The agents that have not said that they cannot run the session."""
    unfit = {agent for agent, _ in session.unfit}
    return [agent for agent in agents if agent.id not in unfit]


def work_of(session: Session) -> str:
    """The id of the session's job, or its own if it has none."""
    return session.id if session.job is None else session.job.id
