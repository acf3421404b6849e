"""The entity of notices: its record and its table."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NewType

from sqlalchemy import func

from muster.control.notice.states import NOTICE_TABLE, NoticeStatus
from muster.core.ids import IdKind
from muster.core.owner import Owner
from muster.core.reasons import Reason
from muster.store.entity import Entity, Tried, Visible
from muster.store.fields import Fixed, Key, LongText, Memory
from muster.store.record_table import RecordTable, index_by_owner, index_live

if TYPE_CHECKING:
    from muster.control.notice.effects import NoticeOutcome

NoticeId = NewType("NoticeId", str)


def name_of(id_: str, subject: str | None) -> str:
    """The name of a notice in the mirror and in history: below the work whose end it tells, so that
    it belongs to that work's history."""
    return id_ if subject is None else f"{subject}/{id_}"


class Tone(StrEnum):
    """How a channel is to present a notice; the words are Apprise's."""

    SUCCESS = "success"
    FAILURE = "failure"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Message:
    """The text of a notice."""

    title: str
    body: str
    tone: Tone


@dataclass(slots=True, eq=False, kw_only=True)
class Notice(Tried):
    """A message for one channel, the id of whose ``subject`` is a job's or session's, None for a
    trial. ``shown`` is its URL as people may see it; ``url`` is a secret, and empty once it has
    ended. ``generation`` counts how often it was handed to the performer; ``reason`` is why its
    last try failed, or its end.

    Two fields are not stored: ``handed_at`` is when the attempt under way was begun, None if there
    is none; ``outcome`` is the outcome of that attempt.
    """

    id: Key[NoticeId]
    subject: Fixed[str | None]
    owner: Fixed[Owner]
    shown: Fixed[str]
    url: LongText = field(repr=False)
    title: Fixed[LongText]
    body: Fixed[LongText]
    tone: Fixed[Tone]
    status: NoticeStatus
    created_at: Fixed[float]
    finished_at: float | None = None
    generation: int = 0
    reason: Reason | None = None
    handed_at: Memory[float | None] = None
    outcome: Memory["NoticeOutcome | None"] = None

    def end(self, now: float, why: Reason | None) -> None:
        """Note the end, and forget the secret."""
        self.finished_at = now
        self.reason = why
        self.url = ""

    @property
    def name(self) -> str:
        return name_of(self.id, self.subject)


NOTICES = RecordTable(Notice, "notices", NOTICE_TABLE)
notices = NOTICES.table
index_live(NOTICES)
index_by_owner(notices)

NOTICE = Entity(
    "notice",
    NOTICES,
    described="a message for one channel; it tells the end of work",
    prefix=IdKind.NOTICE,
    visible=Visible.TO_OWNER,
    id_of=lambda notice: notice.name,
    id_column=func.coalesce(notices.c.subject + "/", "") + notices.c.id,
)
