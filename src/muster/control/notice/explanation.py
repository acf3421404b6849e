"""The answer of `muster why` about a notice: what it waits for, or how it ended."""

from sqlalchemy import Connection

from muster.control.engine.retries import wait_for_next_try
from muster.control.notice.entity import Notice
from muster.control.notice.lifecycle import retries_of
from muster.control.notice.states import NoticeStatus
from muster.core import sentences
from muster.core.owner import Principal
from muster.core.views.base import ReasonView
from muster.core.views.notices import NoticeView
from muster.core.views.placement import WhyView
from muster.store.live import Live


def explain_notice(live: Live, name: str, now: float) -> WhyView:
    """Why a live notice was not sent yet: its try, and how the one before failed."""
    notice = live.of(Notice)[name]
    reasons = [] if notice.reason is None else [notice.reason]
    if notice.handed_at is None:
        reasons += wait_for_next_try(notice, now)
    return WhyView(
        subject=notice.id,
        status=notice.status,
        verdict=_verdict(notice, now),
        reasons=tuple(map(ReasonView.of, reasons)),
    )


def explain_ended_notice(
    connection: Connection, principal: Principal, notice: NoticeView, now: float
) -> WhyView:
    """Whether a notice was sent."""
    sent = notice.status == NoticeStatus.SENT
    return WhyView.of_ended(notice, sentences.notice_ended(sent=sent))


def _verdict(notice: Notice, now: float) -> str:
    return sentences.notice(
        notice.tries + 1,
        retries_of(notice).max_tries,
        under_way_s=None if notice.handed_at is None else now - notice.handed_at,
        waits_for_try=notice.retry_at > now,
    )
