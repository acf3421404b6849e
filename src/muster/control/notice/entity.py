"""The entity of notices: its record, its table, and the mapping between them."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NewType

from sqlalchemy import (
    Column,
    Connection,
    Float,
    Index,
    Integer,
    Row,
    String,
    Table,
    Text,
    func,
    select,
)

from muster.control.notice.states import NOTICE_TABLE, NoticeStatus
from muster.core.ids import IdKind
from muster.core.owner import Owner
from muster.core.reasons import Reason
from muster.store import schema
from muster.store.entity import Entity, Tried, Visible
from muster.store.live import Live
from muster.store.lookup import Lookup
from muster.store.mapping import RowMapping
from muster.store.queries.listing import owner_of
from muster.store.rows import OWNER, REASON, load_reason
from muster.store.sql import one_of

if TYPE_CHECKING:
    from muster.control.notice.effects import NoticeOutcome

NoticeId = NewType("NoticeId", str)

notices = Table(
    "notices",
    schema.metadata,
    Column("id", String, primary_key=True),
    Column("subject", String, nullable=True),  # id of the job or session; null for a trial
    *schema.owner_columns(),
    Column("shown", String, nullable=False),
    Column("url", Text, nullable=False),  # a secret; empty once the notice has ended
    Column("title", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("tone", String, nullable=False),
    Column("status", String, nullable=False),
    Column("status_changed_at", Float, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("finished_at", Float, nullable=True),
    Column("generation", Integer, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("retry_at", Float, nullable=False),
    *schema.reason_columns(),
    sqlite_with_rowid=False,
)
Index(
    "notices_live",
    notices.c.id,
    sqlite_where=notices.c.status.in_(sorted(NOTICE_TABLE.live)),
    postgresql_where=notices.c.status.in_(sorted(NOTICE_TABLE.live)),
)
Index("notices_by_owner", notices.c.domain, notices.c.project, notices.c.user, notices.c.id)


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
    """A message for one channel. ``shown`` is its URL as people may see it; ``generation`` counts
    how often it was handed to the performer; ``reason`` is why its last try failed, or its end.

    Two fields are not stored: ``handed_at`` is when the attempt under way was begun, None if there
    is none; ``outcome`` is the outcome of that attempt.
    """

    id: NoticeId
    subject: str | None
    owner: Owner
    shown: str
    url: str = field(repr=False)
    message: Message
    status: NoticeStatus
    created_at: float
    finished_at: float | None = None
    generation: int = 0
    reason: Reason | None = None
    handed_at: float | None = None
    outcome: "NoticeOutcome | None" = None

    def end(self, now: float, why: Reason | None) -> None:
        """Note the end, and forget the secret."""
        self.finished_at = now
        self.reason = why
        self.url = ""

    @property
    def name(self) -> str:
        return name_of(self.id, self.subject)


_LIVE = Lookup(
    select(notices).where(one_of(notices.c.status, NOTICE_TABLE.live)).order_by(notices.c.id)
)


def _load(connection: Connection, live: Live) -> None:
    for row in _LIVE.named(connection):
        live.add(_notice(row))


def _notice(row: Row[Any]) -> Notice:
    return Notice(
        id=NoticeId(row.id),
        subject=row.subject,
        owner=owner_of(row),
        shown=row.shown,
        url=row.url,
        message=Message(row.title, row.body, Tone(row.tone)),
        status=NoticeStatus(row.status),
        status_changed_at=row.status_changed_at,
        created_at=row.created_at,
        finished_at=row.finished_at,
        generation=row.generation,
        tries=row.tries,
        retry_at=row.retry_at,
        reason=load_reason(row.reason, row.reason_numbers),
    )


NOTICE = Entity(
    "notice",
    Notice,
    NOTICE_TABLE,
    RowMapping[Notice](
        notices,
        changing=(
            "status",
            "status_changed_at",
            "url",
            "finished_at",
            "generation",
            "tries",
            "retry_at",
            *REASON,
        ),
        sources={
            "title": "message.title",
            "body": "message.body",
            "tone": "message.tone",
            **OWNER,
            **REASON,
        },
    ),
    _load,
    described="a message for one channel; it tells the end of work",
    prefix=IdKind.NOTICE,
    visible=Visible.TO_OWNER,
    id_of=lambda notice: notice.name,
    id_column=func.coalesce(notices.c.subject + "/", "") + notices.c.id,
)
