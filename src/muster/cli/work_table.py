"""The table of jobs and sessions."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.cli.ends import ran
from muster.cli.follow.progress import done
from muster.cli.screen import Column, status, table
from muster.cli.words import duration, shorten
from muster.core.ids import IdKind
from muster.core.views.base import OwnerView
from muster.core.views.work import JobView, SessionView

Work = JobView | SessionView


def work_table(console: Console, work: Sequence[Work], why: Mapping[str, str], now: float) -> Table:
    """The table, a line for each job or session; owners are named where there are several."""
    short = shorten(each.id for each in work)
    owners = _owners(work)
    columns = [
        Column("ID"),
        Column("NAME", shrinks=16),
        Column("STATE"),
        Column("TASKS", right=True, drops=1),
        Column("AGE", right=True, drops=2),
        Column("RAN", right=True, drops=4),
        Column("GROUP", drops=3),
        *([Column("OWNER", drops=5, shrinks=12)] if owners else []),
        Column("WHY", flexible=True),
    ]
    return table(console, columns, (_row(each, short, why, owners, now) for each in work))


def _row(
    work: Work,
    short: Mapping[str, str],
    why: Mapping[str, str],
    owners: Mapping[OwnerView, str],
    now: float,
) -> list[Text | str]:
    is_job = isinstance(work, JobView)
    return [
        short[work.id] if is_job else f"{IdKind.SESSION}-{short[work.id]}",
        work.name or "",
        status(work.state if isinstance(work, JobView) else work.status),
        f"{done(work)}/{work.tasks_total}" if isinstance(work, JobView) else work.type,
        duration(now - (work.submitted_at if isinstance(work, JobView) else work.created_at)),
        ran(work.started_at, work.finished_at, now),
        work.group,
        *([owners[work.owner]] if owners else []),
        why.get(work.id, ""),
    ]


def _owners(work: Sequence[Work]) -> dict[OwnerView, str]:
    """The name of each owner where there are several: the user alone, if that tells them apart."""
    owners = {each.owner for each in work}
    if len(owners) < 2:
        return {}
    alone = len({(each.domain, each.project) for each in owners}) == 1
    return {each: each.user if alone else str(each) for each in owners}
