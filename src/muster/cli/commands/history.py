"""``muster history``."""

import time
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.cli.arguments import AsJson, Ref
from muster.cli.nearest import suggesting
from muster.cli.parameters import Option
from muster.cli.screen import Column, print_json, status, stderr, stdout, table, write
from muster.cli.target import Target, on_cluster
from muster.cli.words import clock_time, shorten

if TYPE_CHECKING:
    from muster.core.views import HistoryPage, HistoryView


@on_cluster
def history(
    target: Target,
    ref: Ref,
    limit: Annotated[int, Option("--limit", min=1, help="Newest entries shown.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Tell what happened to a job, a task, a session or an agent."""
    with target.client() as client, suggesting(client, ref):
        page = client.history(ref, limit=limit)
    if as_json:
        print_json(page.items)
        return
    console = stdout()
    write(console, history_table(console, page, time.time()))
    if page.left_out:
        stderr().print(Text(f"older entries are left out: --limit {limit * 10} shows more"))


def history_table(console: Console, page: "HistoryPage", now: float) -> Table:
    short = shorten(entry.entity.partition("/")[0] for entry in page.items)
    columns = [
        Column("WHEN", drops=1),
        Column("WHAT"),
        Column("STATE"),
        Column("BY", drops=3),
        Column("RESULT", drops=4),
        Column("TIMES", right=True, drops=2),
        Column("REASON", flexible=True, wraps=True),
    ]
    return table(console, columns, (_row(entry, short, now) for entry in page.items))


def _row(entry: "HistoryView", short: dict[str, str], now: float) -> list[Text | str]:
    # A job's own identifier stands before the slash of its tasks': the kind says which is which.
    owner, slash, index = entry.entity.partition("/")
    kind = "task" if slash else {"ses": "session", "agt": "agent"}.get(owner[:3], owner[:3])
    name = index if slash else short[owner]
    state = status(entry.to_status)
    if entry.from_status and entry.from_status != entry.to_status:
        state = Text.assemble((entry.from_status.lower(), "dim"), " → ", state)
    return [
        clock_time(entry.first_at, now),
        f"{kind} {name}",
        state,
        entry.phase,
        entry.result.lower(),
        f"{entry.times:,}" if entry.times > 1 else "",
        "; ".join(reason.sentence for reason in entry.reasons),
    ]
