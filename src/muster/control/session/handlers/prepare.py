"""PrepareSessions: SCHEDULED → PREPARING, while agents get the kernels ready."""

from collections.abc import Sequence

from muster.control.engine.handler import HandlerResult, TransitionStatus
from muster.control.engine.work import Work
from muster.control.session.handlers.environment import needs_preparation, preparation
from muster.control.session.heard_time import HeardPhase
from muster.control.session.lifecycle import (
    UNPREPARED,
    begin_again,
    failure_to_judge,
    tried_in_place,
)
from muster.control.tell_agent import TellAgent
from muster.core.states import KernelStatus, SessionStatus
from muster.store.records import Kernel, Session

_WAITING = frozenset({KernelStatus.PREPARING, KernelStatus.PULLING})


class PrepareSessions(HeardPhase):
    """Tells agents to get kernels ready; kernels that need no preparation are PREPARED at once."""

    name = "PrepareSessions"
    between_tries = True
    target_kernel_statuses = UNPREPARED
    entity = Session
    statuses = frozenset({SessionStatus.SCHEDULED, SessionStatus.PREPARING})
    transitions = tried_in_place(
        TransitionStatus(SessionStatus.PREPARING, TransitionStatus(KernelStatus.PREPARING))
    )

    def execute(self, targets: Sequence[Session], work: Work) -> HandlerResult[Session]:
        result: HandlerResult[Session] = HandlerResult()
        for session in targets:
            failure = failure_to_judge(session)
            if failure is not None:
                result.failures[session] = failure
            elif session.status is SessionStatus.SCHEDULED and not session.tally.failed:
                result.successes.append(session)
            elif begin_again(session, work):
                self._send(session.kernels, work)
        return result

    def succeeded(self, record: Session, work: Work) -> None:
        ready = [kernel for kernel in record.kernels if not needs_preparation(kernel)]
        for kernel in ready:
            work.unit.move(kernel, _WAITING, KernelStatus.PREPARED, self.name)
        if len(ready) < len(record.kernels):
            self._send(record.kernels, work)

    def _send(self, kernels: Sequence[Kernel], work: Work) -> None:
        for kernel in kernels:
            if kernel.status in _WAITING and kernel.agent_id is not None:
                work.emit(TellAgent(kernel.agent_id, preparation(kernel)))

    def timeout_s(self, record: Session, work: Work) -> float | None:
        return work.live.groups[record.group].prepare_timeout
