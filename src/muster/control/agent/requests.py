"""Operators' requests about agents: functions of one wake's work that refuse before they change
anything."""

from muster.control.engine.work import Work
from muster.control.session.board import Board
from muster.control.session.start import recall_held_ahead
from muster.core.errors import Conflict, NotFound
from muster.core.ids import AgentId
from muster.core.owner import Principal
from muster.core.reasons import ReasonCode, reason
from muster.core.results import SchedulingResult
from muster.core.states import AgentBar, AgentStatus
from muster.store.records import Agent

PHASE = "Request"


class AgentRequests:
    """Requests about agents."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def bar(
        self,
        work: Work,
        principal: Principal,
        id_: AgentId,
        bar: AgentBar | None,
        note: str = "",
        leave_within_s: float | None = None,
    ) -> Agent:
        """Have an agent take no new work; or, with None, take work again.

        Args:
            note: an operator's explanation.
            leave_within_s: after so long the agent's kernels are stopped, to run elsewhere.

        Raises:
            NotFound: no such agent.
        """
        agent = work.live.agents.get(id_)
        if agent is None:
            raise NotFound(f"there is no agent {id_} any more")
        leave_by = None if leave_within_s is None else work.now + leave_within_s
        before = agent.barred, agent.bar_note
        agent.barred, agent.bar_note, agent.leave_by = bar, note, leave_by
        work.unit.touch(agent)
        work.mark(agent)
        if before != (bar, note):
            code = ReasonCode.AGENT_BARRED if bar else ReasonCode.AGENT_UNBARRED
            why = reason(code, bar=bar or "", note=note, by=principal.owner.user)
            work.unit.note(agent, PHASE, SchedulingResult.SUCCESS, why)
            self._board.agent_changed(agent)
            if bar is not None:
                recall_held_ahead(work, agent.id)
        return agent

    def remove(self, work: Work, principal: Principal, id_: AgentId) -> Agent:
        """Forget an agent that is gone for good, or that was drained.

        Raises:
            NotFound: no such agent.
            Conflict: it is alive and takes work, or holds work that is not proven gone.
        """
        agent = work.live.agents.get(id_)
        if agent is None:
            raise NotFound(f"there is no agent {id_} any more")
        if agent.status is AgentStatus.ALIVE and agent.barred is not AgentBar.DRAINING:
            raise Conflict(
                f"agent {agent.name} is alive: stop it, or empty it with `muster drain "
                f"{agent.name}` first"
            )
        held = len(work.live.held_by.get(id_, ()))
        if held:
            raise Conflict(
                f"agent {agent.name} may still run {held} kernels: wait until they have ended or "
                f"its lease has"
            )
        why = reason(ReasonCode.AGENT_REMOVED, by=principal.owner.user)
        work.transition([agent], {agent.status}, AgentStatus.REMOVED, phase=PHASE, reason=why)
        self._board.agent_changed(agent)
        return agent
