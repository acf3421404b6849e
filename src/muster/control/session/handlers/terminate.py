"""TerminateSessions: kernels of TERMINATING sessions are told to stop, until all are gone."""

import math
from collections.abc import Sequence

from muster.control.engine.handler import (
    NO_CHANGE,
    HandlerResult,
    StatusTransitions,
    TransitionStatus,
)
from muster.control.engine.work import Work
from muster.control.session.heard_time import HeardPhase
from muster.control.session.lifecycle import is_forced, stop_again_at
from muster.control.tell_agent import TellAgent
from muster.core.reasons import Reason
from muster.core.reasons.of_kernels import StopUnconfirmed
from muster.core.states import KERNEL_TABLE, KernelStatus, SessionStatus
from muster.store.records import Kernel, Session
from muster.wire.messages import Stop

_TERMINATED = TransitionStatus(SessionStatus.TERMINATED, TransitionStatus(KernelStatus.TERMINATED))


class TerminateSessions(HeardPhase):
    """Sends each live kernel a Stop and, well past its grace, further ones that grant no time; a
    kernel of work that was cancelled with force gets no grace at all.

    PromoteToTerminated ends a session without live kernels. A session succeeds at once if no agent
    holds anything of its live kernels any more. A try fails where a connected agent has not
    confirmed a Stop in time. EXPIRED and GIVE_UP end a session whose agents do not confirm, but
    free no room: that waits for the agents (design: The ledger).
    """

    name = "TerminateSessions"
    between_tries = True
    target_kernel_statuses = KERNEL_TABLE.live
    entity = Session
    statuses = frozenset({SessionStatus.TERMINATING})
    transitions = StatusTransitions(
        success=_TERMINATED, need_retry=NO_CHANGE, expired=_TERMINATED, give_up=_TERMINATED
    )

    def execute(self, targets: Sequence[Session], work: Work) -> HandlerResult[Session]:
        result: HandlerResult[Session] = HandlerResult()
        for session in targets:
            live = [kernel for kernel in session.kernels if kernel.status in KERNEL_TABLE.live]
            if not any(_is_held(kernel, work) for kernel in live):
                result.successes.append(session)
                continue
            if work.now < session.stop_at:
                continue
            unconfirmed = [kernel for kernel in live if _is_unconfirmed(kernel, work)]
            session.stop_at = min(self._stop(kernel, work) for kernel in live)
            if unconfirmed and work.may_try(session):
                result.failures[session] = _why_failed(unconfirmed[0], work)
        return result

    def _stop(self, kernel: Kernel, work: Work) -> float:
        """Tell the kernel to stop, if that is due; the answer is when it is due again."""
        sent_at = kernel.stop_sent_at
        if kernel.agent_id is None:
            return math.inf
        if sent_at is not None and work.now < stop_again_at(kernel, sent_at):
            return stop_again_at(kernel, sent_at)
        kernel.stop_sent_at = work.now
        why = kernel.session.reason
        told = why.sentence() if why else "it is no longer wanted"
        grace_s = kernel.process.grace if sent_at is None and not is_forced(why) else 0.0
        work.emit(TellAgent(kernel.agent_id, Stop(kernel.id, kernel.generation, grace_s, told)))
        return stop_again_at(kernel, work.now)

    def timeout_s(self, record: Session, work: Work) -> float | None:
        return record.tally.grace_s + work.live.groups[record.group].terminate_timeout


def _is_held(kernel: Kernel, work: Work) -> bool:
    """Whether an agent may hold something of the kernel, as the ledger says."""
    return (kernel.id, kernel.generation) in work.live.ledger


def _is_unconfirmed(kernel: Kernel, work: Work) -> bool:
    """Whether the kernel's agent was told to stop it, is connected, and has not reported its end
    though the time for it is over."""
    agent = work.live.agents.get(kernel.agent_id) if kernel.agent_id else None
    if agent is None or not agent.connected or kernel.stop_sent_at is None:
        return False
    return work.now >= stop_again_at(kernel, kernel.stop_sent_at)


def _why_failed(kernel: Kernel, work: Work) -> Reason:
    assert kernel.agent_id is not None, "it was told to stop"
    name = work.live.agents[kernel.agent_id].name
    return StopUnconfirmed(agent=name, index=kernel.index)
