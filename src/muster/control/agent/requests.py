"""Operators' requests about agents: functions of one wake's work that refuse before they change
anything."""

from muster.control.agent.lifecycle import AgentLifecycle, lose_kernels
from muster.control.engine.work import Work
from muster.control.session.cluster.state import ClusterState
from muster.control.session.explaining.machines import departure_of
from muster.control.session.handlers.start import recall_prefilled
from muster.control.session.kernel_reports import KernelReports
from muster.control.session.must_leave import Departure, note_departure
from muster.core.errors import Conflict, NotFound
from muster.core.ids import AgentId
from muster.core.owner import Principal
from muster.core.reasons.of_agents import (
    AgentBarred,
    AgentRemoved,
    AgentRemovedAsLost,
    AgentUnbarred,
)
from muster.core.reasons.of_kernels import AgentGivenUp
from muster.core.reasons.wording import counted
from muster.core.results import SchedulingResult
from muster.core.states import AgentBar, AgentStatus
from muster.store.records import Agent

PHASE = "Request"


class AgentRequests:
    """Requests about agents."""

    def __init__(
        self, agents: AgentLifecycle, cluster: ClusterState, kernel_reports: KernelReports
    ) -> None:
        self._agents = agents
        self._cluster = cluster
        self._kernel_reports = kernel_reports

    def bar(
        self,
        work: Work,
        principal: Principal,
        id_: AgentId,
        bar: AgentBar | None,
        note: str | None = "",
        leave_within_s: float | None = None,
        *,
        keeps_deadline: bool = False,
    ) -> Agent:
        """Have an agent take no new work; or, with None, take work again.

        Args:
            note: an operator's explanation; None keeps that of an agent that takes none already.
            leave_within_s: after so long the agent's kernels are stopped, to run elsewhere.
            keeps_deadline: whether an agent that is drained already keeps its deadline.

        Raises:
            NotFound: no such agent.
        """
        agent = _found(work, id_)
        leave_by = None if leave_within_s is None else work.now + leave_within_s
        before, left_by = (agent.barred, agent.bar_note), agent.leave_by
        if keeps_deadline and agent.barred is bar is AgentBar.DRAINING:
            leave_by = agent.leave_by
        if note is None:
            note = agent.bar_note if bar is not None else ""
        agent.barred, agent.bar_note, agent.leave_by = bar, note, leave_by
        work.unit.touch(agent)
        work.mark(agent)
        if leave_by is not None and leave_by != left_by:
            why = departure_of(agent, leave_by, work.now)
            note_departure(work, agent, Departure(leave_by, why))
        elif leave_by is None and left_by is not None and work.now < left_by:
            note_departure(work, agent, Departure(None))
        if before != (bar, note):
            kind = AgentBarred if bar else AgentUnbarred
            by = principal.owner.user
            why = kind(bar=bar or "", note=note, by=by, agent=agent.name)
            work.unit.note(agent, PHASE, SchedulingResult.SUCCESS, why)
            self._cluster.agent_changed(agent)
            if bar is not None:
                recall_prefilled(work, agent.id)
        return agent

    def remove(
        self, work: Work, principal: Principal, id_: AgentId, *, lost: bool = False
    ) -> Agent:
        """Forget an agent that is gone for good, or that was drained; its name becomes free.

        Args:
            lost: whether the administrator vouches that the machine, and with it all of its
                kernels, is gone or was rebooted.

        Raises:
            NotFound: no such agent.
            Conflict: it is alive and takes work; or it holds kernels that are not proven gone, and
                nobody vouches for their end.
        """
        agent, by = _found(work, id_), principal.owner.user
        held = list(work.live.allocations_on.get(agent.id, ()))
        if agent.status is AgentStatus.ALIVE and (lost or agent.barred is not AgentBar.DRAINING):
            raise Conflict(
                f"agent {agent.name} is alive: stop it, or empty it with `muster drain "
                f"{agent.name}` first"
            )
        if held and not lost:
            kernels = counted(len(held), "kernel")
            raise Conflict(
                f"agent {agent.name} may still run {kernels}: wait until they have ended "
                f"or its lease has; if its machine is gone or was rebooted, say so with `muster "
                f"agents remove --lost {agent.name}`"
            )
        if held:
            gone = AgentGivenUp(agent=agent.name, by=by)
            lose_kernels(work, agent, held, gone, self._kernel_reports, agent.seen_at)
        why = AgentRemovedAsLost(by=by) if lost else AgentRemoved(by=by)
        self._agents.remove(work, agent, "Remove", why)
        return agent


def _found(work: Work, id_: AgentId) -> Agent:
    """
    Raises:
        NotFound: no such agent.
    """
    agent = work.live.agents.get(id_)
    if agent is None:
        raise NotFound(f"there is no agent {id_} any more")
    return agent
