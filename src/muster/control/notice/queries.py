"""Notices in SQL."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, select

from muster.control.notice.entity import NOTICE, Message, NoticeId, Tone, notices
from muster.core.owner import Principal
from muster.core.views.notices import NoticePage, NoticeView
from muster.core.views.projection import view_of
from muster.store.queries.listing import Listing, listed, page_of, reason_view
from muster.store.queries.refs import resolve


@dataclass(frozen=True, slots=True, repr=False)
class NoticeErrand:
    """The part of a notice that its performer needs; it is shown nowhere."""

    url: str
    message: Message


def read_errand(connection: Connection, id_: NoticeId) -> NoticeErrand | None:
    """The errand of a notice; None if the notice has ended."""
    row = connection.execute(select(notices).where(notices.c.id == id_)).first()
    if row is None or not row.url:
        return None
    return NoticeErrand(row.url, Message(row.title, row.body, Tone(row.tone)))


def read_notice(connection: Connection, principal: Principal, ref: str) -> NoticeView:
    """
    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    id_ = resolve(connection, NOTICE, principal, ref)
    return _view(connection.execute(select(notices).where(notices.c.id == id_)).one())


def list_notices(connection: Connection, principal: Principal, listing: Listing) -> NoticePage:
    """Notices that the principal may see."""
    rows = connection.execute(listed(select(notices), NOTICE, principal, listing)).all()
    items, cursor = page_of(rows, listing, _view)
    return NoticePage(items=items, next=cursor)


def _view(row: Row[Any]) -> NoticeView:
    return view_of(NoticeView, row, channel=row.shown, reason=reason_view(row))
