"""States of a notice."""

from enum import StrEnum

from muster.core.states.table import StateTable


class NoticeStatus(StrEnum):
    PENDING = "PENDING"
    SENDING = "SENDING"
    SENT = "SENT"
    FAILED = "FAILED"


_N = NoticeStatus

NOTICE_TABLE: StateTable[NoticeStatus] = StateTable(
    "notice",
    initial=_N.PENDING,
    terminal=frozenset({_N.SENT, _N.FAILED}),
    allowed={
        (_N.PENDING, _N.SENDING): "it is its turn",
        (_N.PENDING, _N.FAILED): "too old to be of use, or too many wait",
        (_N.SENDING, _N.SENT): "the channel took it",
        (_N.SENDING, _N.FAILED): "given up",
    },
    words={
        _N.SENDING: "is being sent",
        _N.SENT: "was sent",
        _N.FAILED: "was not sent",
    },
)
