"""Time in which a session's agents can be heard: phases that reports end, and how long it ran."""

import math
from collections.abc import Callable, Set

from muster.control.engine.handler import LifecycleHandler
from muster.control.engine.work import Work
from muster.core.ids import AgentId
from muster.core.states import KERNEL_TABLE, AgentStatus
from muster.store.records import Agent, Session

Unheard = Callable[[], Set[AgentId]]
"""Tells the agents that have said something that waits for a later wake. After an outage messages
may fill several wakes: what an agent said is heard before its silence is judged, or the time of its
kernels."""
TELLING_S = 5.0
"""The time that an agent has after it connects to report what happened meanwhile."""
_GONE = frozenset({AgentStatus.LOST, AgentStatus.REMOVED})
"""States of agents that need not come back."""
LOOK_AGAIN_S = 1.0
"""How long a verdict is put off because a message of an agent waits."""


def heard_since(session: Session, began: float, work: Work) -> float | None:
    """The time from which the timeout of a phase that began at ``began`` counts: later than that by
    all the time in which an agent of the session's live kernels could not be heard; None while an
    agent cannot be heard. So no phase expires because an agent could not report (design: Silence is
    not failure), and no timeout begins anew when an agent comes back.
    """
    absences: set[tuple[float, float]] = set()
    for agent_id in {k.agent_id for k in session.kernels if k.status in KERNEL_TABLE.live}:
        agent = work.live.agents.get(agent_id) if agent_id else None
        if agent is None:
            continue
        if not agent.connected:
            return None
        absences.update((left, back) for left, back in agent.absences if back > began)
    heard_from, counted_to = began, began
    for left, back in sorted(absences):
        heard_from += max(0.0, back - max(left, counted_to))
        counted_to = max(counted_to, back)
    return heard_from


class HeardPhase(LifecycleHandler[Session]):
    """A handler of a phase that is ended by reports of agents about the kernels that have one of
    its ``target_kernel_statuses``: once all reports have come the session is no target any more.
    Its timeout counts only the time in which all these agents can be heard, and is not judged while
    one of them is ``unheard``."""

    def __init__(self, unheard: Unheard) -> None:
        self._unheard = unheard

    def since(self, record: Session, work: Work) -> float:
        timeout_s, began = self.timeout_s(record, work), self.began(record)
        if timeout_s is None or work.now < began + timeout_s:
            return began  # at the earliest; agents need not be looked at yet
        unheard = self._unheard()
        if unheard and any(kernel.agent_id in unheard for kernel in record.kernels):
            return work.now + LOOK_AGAIN_S - timeout_s
        heard = heard_since(record, began, work)
        if heard is None:
            return math.inf
        return min(max(heard, _told_by(record, work) - timeout_s), heard + timeout_s)

    def began(self, record: Session) -> float:
        """When the phase began."""
        return record.status_changed_at


def _told_by(session: Session, work: Work) -> float:
    """The time by which agents that have just come back have reported what happened meanwhile."""
    agents = (work.live.agents.get(k.agent_id) for k in session.kernels if k.agent_id)
    return max((each.connected_at for each in agents if each), default=0.0) + TELLING_S


def timed_out_at(session: Session, timeout_s: float, work: Work) -> float:
    """When a running session has run for so long, by the clocks of its agents: a leap of the
    controller's time since it started does not count (design: Time). Infinite while an agent of its
    live kernels has not said Hello to this controller, because its clock is not known; its Hello or
    its loss follows. Machines of kernels that have ended are not waited for: they may never come
    back."""
    started_at, leapt_s = session.started_at or work.now, 0.0
    for agent_id in {k.agent_id for k in session.kernels if k.status in KERNEL_TABLE.live}:
        agent = work.live.agents.get(agent_id) if agent_id else None
        if agent is None or agent.status in _GONE:
            continue
        if not agent.connected_at:
            return math.inf
        leapt_s = max(leapt_s, _leapt_s(agent, started_at))
    return started_at + timeout_s + leapt_s


def _leapt_s(agent: Agent, since: float) -> float:
    """By how much the controller's time has gone ahead of the agent's boot clock since then."""
    if not agent.leaps:
        return 0.0
    ahead_s = [ahead_s for at, ahead_s in agent.leaps if at <= since]
    return max(0.0, agent.leaps[-1][1] - (ahead_s[-1] if ahead_s else 0.0))
