"""A session as `muster show` tells it."""

from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from muster.cli.described.kernels import COLUMNS, cells
from muster.cli.described.record import environment, heading, sentences, times
from muster.cli.screen import Column, fields, table

if TYPE_CHECKING:
    from muster.core.views.work import SessionDetail


def session_parts(console: Console, session: "SessionDetail", now: float) -> list[RenderableType]:
    spec = session.spec
    started, finished = session.started_at, session.finished_at
    return [
        heading(session.name or session.id, session.status, session.id if session.name else ""),
        fields(
            [
                ("reason", sentences(session.reason)),
                ("job", session.job_id),
                ("group", session.group),
                ("owner", str(session.owner)),
                ("env", environment(spec.get("kernels", ())) if spec else None),
                ("spec", sentences(session.spec_cut)),
                ("re-scheduled", str(session.reschedules) if session.reschedules else None),
                ("times", times(session.created_at, started, finished, now)),
            ]
        ),
        Text(),
        table(
            console,
            [Column("KERNEL", right=True), *COLUMNS],
            ([str(each.index), *cells(each, now)] for each in session.kernels),
        ),
    ]
