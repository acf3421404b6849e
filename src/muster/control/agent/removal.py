"""Removal of agents that are gone for good, or were drained; the name becomes free."""

from muster.control.agent.lifecycle import AgentLifecycle, lose_kernels
from muster.control.engine.work import Work
from muster.control.session.kernel_reports import Facts
from muster.core.errors import Conflict
from muster.core.reasons import ReasonCode, reason
from muster.core.states import AgentBar, AgentStatus
from muster.store.records import Agent

PHASE = "Remove"


def remove(
    work: Work, agents: AgentLifecycle, facts: Facts, agent: Agent, by: str, *, lost: bool
) -> None:
    """Forget an agent.

    Args:
        by: the administrator who asks for the removal.
        lost: whether the administrator vouches that the machine, and with it all of its kernels, is
            gone or was rebooted.

    Raises:
        Conflict: the agent is alive and takes work; or it holds kernels that are not proven gone,
            and nobody vouches for their end.
    """
    held = list(work.live.held_by.get(agent.id, ()))
    if agent.status is AgentStatus.ALIVE and (lost or agent.barred is not AgentBar.DRAINING):
        raise Conflict(
            f"agent {agent.name} is alive: stop it, or empty it with `muster drain "
            f"{agent.name}` first"
        )
    if held and not lost:
        raise Conflict(
            f"agent {agent.name} may still run {len(held)} kernels: wait until they have ended or "
            f"its lease has; if its machine is gone or was rebooted, say so with `muster agents "
            f"remove --lost {agent.name}`"
        )
    if held:
        gone = reason(ReasonCode.AGENT_GIVEN_UP, agent=agent.name, by=by)
        lose_kernels(work, agent, held, gone, facts, agent.seen_at)
    code = ReasonCode.AGENT_REMOVED_AS_LOST if lost else ReasonCode.AGENT_REMOVED
    agents.remove(work, agent, PHASE, reason(code, by=by))
