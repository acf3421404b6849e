"""Reasons about the machine on which work runs."""

import math
from collections.abc import Mapping
from dataclasses import replace

from muster.core.reasons import Reason
from muster.core.reasons.of_agents import ToLeave
from muster.core.reasons.of_sessions import AgentIsUnreachable
from muster.core.states import AgentStatus
from muster.core.views.base import ReasonView
from muster.store.live import Live
from muster.store.records import Agent


def silence_of(agent: Agent, now: float) -> Reason:
    """The reason that an agent is silent, and for how long its kernels count as running."""
    why = AgentIsUnreachable(agent=agent.name, silent_s=round(now - agent.seen_at))
    if math.isfinite(agent.lost_at):
        return replace(why, ends_in_s=max(round(agent.lost_at - now), 1))
    return replace(why, endless=agent.lost_at > now)


def silence_by_work(live: Live, now: float) -> Mapping[str, ReasonView]:
    """The reason that an agent is silent, by the ids of the jobs and sessions that run on it; of
    several such agents, one."""
    found: dict[str, ReasonView] = {}
    for agent in live.agents.values():
        if agent.connected or agent.status is AgentStatus.REMOVED:
            continue
        why = None
        for allocation in live.allocations_on.get(agent.id, {}).values():
            kernel = live.kernels.get(allocation.kernel_id)
            if kernel is None or not allocation.charged:
                continue
            why = why or ReasonView.of(silence_of(agent, now))
            session = kernel.session
            found[session.id] = why
            if session.job is not None:
                found[session.job.id] = why
    return found


def departure_of(agent: Agent, leave_by: float, now: float) -> Reason:
    """The reason that the kernels of an agent have to leave it at ``leave_by``."""
    in_s = max(round(leave_by - now), 0)
    return ToLeave(agent=agent.name, note=agent.bar_note, in_s=in_s)
