"""Answers about notices."""

from muster.core.views.base import ReasonView, RecordView


class NoticeView(RecordView):
    """A notice; ``channel`` is where it goes, without secrets, ``subject`` the work whose end it
    tells, None for a trial."""

    channel: str
    status: str
    created_at: float
    subject: str | None = None
    finished_at: float | None = None
    reason: ReasonView | None = None
