"""Lamps as people are shown them."""

from muster.core.views.base import ReasonView, RecordView, View


class LampView(RecordView):
    name: str
    status: str
    reason: ReasonView | None = None


class LampPage(View):
    items: tuple[LampView, ...]
    next: str | None = None
