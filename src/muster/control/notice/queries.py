"""Notices in SQL."""

from dataclasses import dataclass

from sqlalchemy import Connection, select

from muster.control.notice.entity import Message, NoticeId, Tone, notices
from muster.core.errors import NotFound
from muster.core.owner import Principal
from muster.core.views.notices import NoticeView
from muster.store.queries.listing import reason_view
from muster.store.queries.refs import visible


@dataclass(frozen=True, slots=True, repr=False)
class Errand:
    """The part of a notice that its performer needs; it is shown nowhere."""

    url: str
    message: Message


def read_errand(connection: Connection, id_: NoticeId) -> Errand | None:
    """The errand of a notice; None if the notice has ended."""
    row = connection.execute(select(notices).where(notices.c.id == id_)).first()
    if row is None or not row.url:
        return None
    return Errand(row.url, Message(row.title, row.body, Tone(row.tone)))


def read_notice(connection: Connection, principal: Principal, id_: NoticeId) -> NoticeView:
    """
    Raises:
        NotFound: no such notice that the principal may see.
    """
    conditions = [notices.c.id == id_, *visible(notices, principal)]
    row = connection.execute(select(notices).where(*conditions)).first()
    if row is None:
        raise NotFound(f"there is no notice {id_}")
    return NoticeView(
        id=row.id,
        subject=row.subject,
        channel=row.shown,
        status=row.status,
        created_at=row.created_at,
        finished_at=row.finished_at,
        reason=reason_view(row),
    )
