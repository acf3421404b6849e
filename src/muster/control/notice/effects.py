"""The effect that has a channel get a notice, and its outcome."""

import logging
from dataclasses import dataclass

from muster.control.engine.inputs import Input
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.notice.entity import Notice, NoticeId
from muster.control.notice.states import NoticeStatus
from muster.core.reasons import Reason

log = logging.getLogger(__name__)

ATTEMPT_S = 20.0
"""How long a performer tries to send a notice."""
ANSWER_S = 60.0
"""How long the outcome of an attempt is waited for, including its time in the performer's queue."""


@dataclass(frozen=True, slots=True)
class SendNotice:
    """Have a channel get a notice. The key is (name, generation); the performer reads channel and
    message by the id, so that no token is in an effect."""

    name: str
    generation: int

    @property
    def id(self) -> NoticeId:
        return NoticeId(self.name.rpartition("/")[2])


@dataclass(frozen=True, slots=True)
class NoticeOutcome(Input):
    """The outcome of a ``SendNotice``: the channel took it, or did not for a ``reason``."""

    name: str
    generation: int
    reason: Reason | None = None

    def take(self, work: Work, parts: Parts) -> None:
        notice = work.live.of(Notice).get(self.name)
        if (
            notice is None
            or notice.status is not NoticeStatus.SENDING
            or notice.generation != self.generation
        ):
            return  # another attempt has begun, or none is needed
        notice.outcome = self
        work.mark(notice)

    def refuse(self, error: Exception) -> None:
        log.warning("the outcome of notice %s is dropped: %s", self.name, error)
