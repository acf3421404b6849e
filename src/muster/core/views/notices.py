"""Answers about notices."""

from muster.core.views.base import ReasonView, RecordView, View


class NoticeView(RecordView):
    """A notice; ``channel`` is where it goes, without secrets, ``subject`` the work whose end it
    tells, None for a trial; ``tries`` counts failed tries, and ``reason`` is that of the last."""

    channel: str
    status: str
    created_at: float
    subject: str | None = None
    finished_at: float | None = None
    tries: int = 0
    reason: ReasonView | None = None


class NoticePage(View):
    """Notices, newest first. ``next`` continues the listing as ``cursor``; None at its end."""

    items: tuple[NoticeView, ...]
    next: str | None = None
