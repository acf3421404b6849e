"""The answer of `muster why` about a notice: for what it waits, or what became of it."""

from muster.control.notice.entity import Notice
from muster.control.notice.lifecycle import retries_of
from muster.control.notice.states import NoticeStatus
from muster.core.reasons import ReasonCode, reason
from muster.core.views.base import ReasonView
from muster.core.views.notices import NoticeView
from muster.core.views.placement import WhyView
from muster.store.live import Live


def explain_notice(live: Live, name: str, now: float) -> WhyView:
    """Why a live notice was not sent yet: its try, and how the one before failed."""
    notice = live.of(Notice)[name]
    reasons = [] if notice.reason is None else [notice.reason]
    if notice.handed_at is None and notice.retry_at > now:
        reasons.append(reason(ReasonCode.RETRY_BACKOFF, seconds=round(notice.retry_at - now, 1)))
    return WhyView(
        subject=notice.id,
        status=notice.status,
        verdict=_verdict(notice, now),
        reasons=tuple(map(ReasonView.of, reasons)),
    )


def explain_ended_notice(notice: NoticeView) -> WhyView:
    """Whether a notice was sent."""
    sent = notice.status == NoticeStatus.SENT
    said = "the channel took it" if sent else "it was not sent, and is not tried again"
    return WhyView.of_ended(notice, said)


def _verdict(notice: Notice, now: float) -> str:
    of_tries = f"try {notice.tries + 1} of {retries_of(notice).max_tries}"
    if notice.handed_at is not None:
        return f"{of_tries} is under way for {max(now - notice.handed_at, 0.0):.0f} s"
    if notice.retry_at > now:
        return f"waits for {of_tries}"
    return f"waits until it is its turn for {of_tries}; notices of all users are sent in turn"
