"""The table of jobs and sessions."""

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.cli import kinds
from muster.cli.ends import ran
from muster.cli.kinds.kind import Row
from muster.cli.screen import Column, status, table
from muster.cli.words import duration, shorten
from muster.core.views.base import OwnerView, RecordView
from muster.core.views.work import WorkStanding

_NOT_RUNNING = (WorkStanding.WAITING, WorkStanding.STARTING)
"""How work stands of which nothing runs now, though it may have run before."""


def work_table(
    console: Console, work: Sequence[RecordView], why: Mapping[str, str], now: float
) -> Table:
    """The table, a line for each job or session; owners are named where there are several."""
    rows = [kinds.of_work(each).row(each) for each in work]
    short = shorten(each.id for each in work)
    owners = _owners(rows)
    several = any(row.tasks for row in rows)
    numbers = [Column(name, right=True, drops=6) for name in ("RUNNING", "WAITING", "FAILED")]
    columns = [
        Column("ID"),
        Column("NAME", shrinks=16),
        Column("STATE"),
        Column("TASKS", right=True, drops=1),
        *(numbers if several else []),
        *([Column("GPUS", right=True, drops=6)] if any(row.gpus for row in rows) else []),
        Column("AGE", right=True, drops=2),
        Column("RAN", right=True, drops=4),
        Column("GROUP", drops=3),
        *([Column("OWNER", drops=5, shrinks=12)] if owners else []),
        Column("WHY", flexible=True),
    ]
    cells: Iterable[list[Text | str]] = (
        [
            row.prefix + short[each.id],
            row.name,
            status(standing),
            row.size,
            *(_numbers(row) if several else []),
            *([row.gpus or "-"] if any(each.gpus for each in rows) else []),
            duration(now - row.created_at),
            "" if standing in _NOT_RUNNING else ran(row.started_at, row.finished_at, now),
            row.group,
            *([owners[row.owner]] if owners else []),
            why.get(each.id, ""),
        ]
        for each, row in zip(work, rows, strict=True)
        for standing in [kinds.of_work(each).standing(each)]
    )
    return table(console, columns, cells)


def _numbers(row: Row) -> list[Text | str]:
    """The numbers of its tasks that run, wait, and have failed; a zero is left out."""
    running, waiting, failed = row.tasks or (0, 0, 0)
    of_standing = ((WorkStanding.RUNNING, running), (WorkStanding.WAITING, waiting))
    cells: list[Text | str] = [
        Text(f"{number:,}", status(word).style) if number else "" for word, number in of_standing
    ]
    cells.append(Text(f"{failed:,}", status(WorkStanding.FAILED).style) if failed else "")
    return cells


def _owners(rows: Sequence[Row]) -> dict[OwnerView, str]:
    """The name of each owner where there are several: the user alone, if that tells them apart."""
    owners = {each.owner for each in rows}
    if len(owners) < 2:
        return {}
    alone = len({(each.domain, each.project) for each in owners}) == 1
    return {each: each.user if alone else str(each) for each in owners}
