"""The four promotions (design: Promotion)."""

from enum import Enum, StrEnum
from typing import ClassVar

from muster.control.engine.handler import DerivationHandler, PromotionHandler
from muster.control.engine.work import Work
from muster.core.reasons import Reason, ReasonCode, reason
from muster.core.specs import SessionType
from muster.core.states import KERNEL_TABLE, SESSION_TABLE, KernelStatus, SessionStatus
from muster.store.records import Session

_K = KernelStatus
_UNPREPARED = frozenset({_K.PENDING, _K.SCHEDULED, _K.PREPARING, _K.PULLING})
_UNSTARTED = _UNPREPARED | {_K.PREPARED, _K.CREATING}


class KernelMatchType(Enum):
    """How many kernels must have one of the statuses named."""

    ALL = "all"
    ANY = "any"
    NOT_ANY = "not_any"


class SessionPromotionHandler(PromotionHandler[Session]):
    """Promotes sessions by the statuses of their kernels."""

    entity = Session
    check_kernel_statuses: ClassVar[frozenset[KernelStatus]]
    match_type: ClassVar[KernelMatchType]

    def promotes(self, record: Session) -> bool:
        """Whether the kernels meet the condition; a session without kernels never does, except to
        its end (design: Promotion)."""
        kernels = len(record.kernels)
        found = record.tally.among(self.check_kernel_statuses)
        match self.match_type:
            case KernelMatchType.ALL:
                return 0 < kernels == found
            case KernelMatchType.ANY:
                return found > 0
            case KernelMatchType.NOT_ANY:
                if not kernels:
                    return self.success in SESSION_TABLE.terminal
                return not found


class PromoteToPrepared(SessionPromotionHandler):
    """SCHEDULED or PREPARING → PREPARED once no kernel is unprepared."""

    name = "PromoteToPrepared"
    targets = frozenset({SessionStatus.SCHEDULED, SessionStatus.PREPARING})
    check_kernel_statuses = _UNPREPARED
    match_type = KernelMatchType.NOT_ANY
    success = SessionStatus.PREPARED


class PromoteToRunning(SessionPromotionHandler):
    """CREATING → RUNNING once every kernel has started."""

    name = "PromoteToRunning"
    targets = frozenset({SessionStatus.CREATING})
    check_kernel_statuses = _UNSTARTED
    match_type = KernelMatchType.NOT_ANY
    success = SessionStatus.RUNNING


class DetectTermination(SessionPromotionHandler):
    """RUNNING → TERMINATING once a kernel has ended.

    In a batch session a kernel that ended with 0 does not count until all have ended; any other end
    counts at once (design: Promotion).
    """

    name = "DetectTermination"
    targets = frozenset({SessionStatus.RUNNING})
    check_kernel_statuses = KERNEL_TABLE.terminal
    match_type = KernelMatchType.ANY
    success = SessionStatus.TERMINATING

    def promotes(self, record: Session) -> bool:
        ended = record.tally.among(self.check_kernel_statuses)
        if record.type is not SessionType.BATCH:
            return ended > 0
        return ended == len(record.kernels) or ended > record.tally.ended_well

    def reason(self, record: Session) -> Reason | None:
        for kernel in record.kernels:
            if kernel.status in self.check_kernel_statuses and not kernel.ended_well:
                how = kernel.reason.sentence() if kernel.reason else kernel.status
                return reason(ReasonCode.KERNEL_ENDED, index=kernel.index, how=how)
        return reason(ReasonCode.COMPLETED)


class PromoteToTerminated(SessionPromotionHandler):
    """TERMINATING → TERMINATED once no kernel is live."""

    name = "PromoteToTerminated"
    targets = frozenset({SessionStatus.TERMINATING})
    check_kernel_statuses = KERNEL_TABLE.live
    match_type = KernelMatchType.NOT_ANY
    success = SessionStatus.TERMINATED

    def reason(self, record: Session) -> Reason | None:
        return record.reason


class EnforceTimeout(DerivationHandler[Session]):
    """RUNNING → TERMINATING when the session ran longer than its spec allows."""

    name = "EnforceTimeout"
    entity = Session
    targets = frozenset({SessionStatus.RUNNING})

    def derive(self, record: Session, work: Work) -> tuple[StrEnum, Reason | None] | None:
        timeout_s = record.timeout_s
        if timeout_s is None or record.started_at is None:
            return None
        if work.now < record.started_at + timeout_s:
            return None
        return SessionStatus.TERMINATING, reason(ReasonCode.TIMEOUT, timeout_s=timeout_s)
