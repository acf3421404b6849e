"""Reasons of notices: why one did not get to its channel."""

from dataclasses import dataclass

from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.reason import Reason
from muster.core.reasons.wording import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRefused(Reason):
    code = ReasonCode.NOTICE_REFUSED
    kind = ReasonKind.REQUEST

    answer: int | str

    def sentence(self) -> str:
        return f"the channel did not take the notice, it answered {self.answer}"

    def remedy(self) -> str:
        return "Check the channel's URL."


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeUnreachable(Reason):
    code = ReasonCode.NOTICE_UNREACHABLE
    kind = ReasonKind.OPERATOR

    def sentence(self) -> str:
        return "the channel could not be reached from the controller's machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeTimedOut(Reason):
    code = ReasonCode.NOTICE_TIMED_OUT
    kind = ReasonKind.OPERATOR

    timeout_s: float

    def sentence(self) -> str:
        return f"the channel did not answer within {shown(self.timeout_s)} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeForbidden(Reason):
    code = ReasonCode.NOTICE_FORBIDDEN
    kind = ReasonKind.REQUEST

    detail: str

    def sentence(self) -> str:
        return f"nothing may be sent there: {self.detail}"

    def remedy(self) -> str:
        return "An operator can allow it in notices.yaml."


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeNotUnderstood(Reason):
    code = ReasonCode.NOTICE_NOT_UNDERSTOOD
    kind = ReasonKind.REQUEST

    def sentence(self) -> str:
        return "the channel's URL is not as its service wants it"

    def remedy(self) -> str:
        return "See the service's page at https://appriseit.com."


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticesNotInstalled(Reason):
    code = ReasonCode.NOTICES_NOT_INSTALLED
    kind = ReasonKind.OPERATOR

    def sentence(self) -> str:
        return "the controller has no library to send notices with"

    def remedy(self) -> str:
        return "Install it there: pip install 'muster-scheduler[notices]'."


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeUnknown(Reason):
    code = ReasonCode.NOTICE_UNKNOWN
    kind = ReasonKind.OPERATOR

    waited_s: float

    def sentence(self) -> str:
        return f"nothing was heard for {shown(self.waited_s)} s of what became of the notice"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticesTooMany(Reason):
    code = ReasonCode.NOTICES_TOO_MANY
    kind = ReasonKind.REQUEST

    waiting: int

    def sentence(self) -> str:
        return f"{self.waiting} notices of its owner were waiting already"

    def remedy(self) -> str:
        return "Tell the end of fewer jobs, or look at what their channels answer."
