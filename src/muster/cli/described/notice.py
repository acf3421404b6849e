"""A notice as `muster show` tells it."""

from typing import TYPE_CHECKING

from rich.console import RenderableType

from muster.cli.described.record import ago, heading, sentences
from muster.cli.screen import fields
from muster.cli.streams import plain
from muster.cli.words import moment

if TYPE_CHECKING:
    from muster.core.views.notices import NoticeView


def notice_parts(notice: "NoticeView", now: float) -> list[RenderableType]:
    """A notice: where it goes, the work whose end it tells, and what became of it."""
    ended = f", ended {ago(notice.finished_at, now)}" if notice.finished_at else ""
    return [
        heading(notice.id, notice.status),
        fields(
            [
                ("reason", sentences(notice.reason)),
                ("channel", plain(notice.channel)),
                ("tells of", notice.subject or "nothing: it was a test"),
                ("failed tries", str(notice.tries) if notice.tries else None),
                ("times", f"made {moment(notice.created_at)}{ended}"),
            ]
        ),
    ]
