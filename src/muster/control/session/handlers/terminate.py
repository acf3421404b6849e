"""TerminateSessions: kernels of TERMINATING sessions are told to stop, until all are gone."""

import math
from collections.abc import Sequence

from muster.control.engine.handler import (
    HandlerResult,
    StatusTransitions,
    TransitionStatus,
)
from muster.control.engine.work import Work
from muster.control.session.lifecycle import HeardPhase, is_forced, stop_again_at
from muster.control.tell_agent import TellAgent
from muster.core.states import KERNEL_TABLE, KernelStatus, SessionStatus
from muster.store.records import Kernel, Session
from muster.wire.messages import Stop


class TerminateSessions(HeardPhase):
    """Sends each live kernel a Stop and, well past its grace, further ones that grant no time; a
    kernel of work that was cancelled with force gets no grace at all.

    PromoteToTerminated ends a session without live kernels. Expiry ends a session whose agent does
    not answer, but frees no room: that waits for the agent (design: The ledger).
    """

    name = "TerminateSessions"
    between_tries = True
    target_kernel_statuses = KERNEL_TABLE.live
    entity = Session
    statuses = frozenset({SessionStatus.TERMINATING})
    transitions = StatusTransitions(
        expired=TransitionStatus(
            SessionStatus.TERMINATED, TransitionStatus(KernelStatus.TERMINATED)
        ),
    )

    def execute(self, targets: Sequence[Session], work: Work) -> HandlerResult[Session]:
        result: HandlerResult[Session] = HandlerResult()
        for session in targets:
            if work.now < session.stop_at:
                continue
            live = [kernel for kernel in session.kernels if kernel.status in KERNEL_TABLE.live]
            session.stop_at = min(self._stop(kernel, work) for kernel in live)
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
