"""``muster history``."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.cli import kinds
from muster.cli.arguments import AnyRef, AsJson
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.nearest import suggesting
from muster.cli.parameters import Option
from muster.cli.screen import Column, status, stderr, stdout, table, write
from muster.cli.streams import plain, print_json
from muster.cli.words import clock_time, sentence_of
from muster.core.errors import MusterError
from muster.core.results import SchedulingResult

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.work import HistoryView

MOST_ROUTES = 1000
"""Routes of a deployment, the newest, of which the revision is told."""
_STEPS = frozenset({"SCHEDULED", "PREPARING", "PREPARED", "CREATING", "TERMINATING"})
_STAYED = {
    SchedulingResult.SKIPPED: "waits",
    SchedulingResult.FAILURE: "did not succeed",
    SchedulingResult.NEED_RETRY: "did not succeed, is tried again",
    SchedulingResult.EXPIRED: "took too long",
    SchedulingResult.GIVE_UP: "is given up",
}
"""Words for an entry without a change of state."""


@on_cluster
def history(
    cluster: Cluster,
    ref: AnyRef,
    limit: Annotated[
        int, Option("--limit", "-n", min=1, help="Show so many of the newest entries.")
    ] = 100,
    every: Annotated[
        bool, Option("--all", "-a", help="Include each step to a start and to an end.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Tell what happened to a record, such as a job or an agent."""
    with cluster.client() as client, suggesting(client, ref, kinds.every()):
        page = client.history(ref, limit=limit)
        revisions = {} if as_json else _revisions(client, page.items)
    if as_json:
        print_json(page.items)
        return
    console = stdout()
    shown = [entry for entry in page.items if every or not _is_step(entry)]
    write(console, history_table(console, shown, time.time(), revisions))
    if page.left_out:
        stderr().print(Text(f"older entries are left out: --limit {limit * 10} shows more"))


def _is_step(entry: "HistoryView") -> bool:
    """Whether the entry is only a step of an attempt towards its start or its end."""
    went_well = entry.task_index is not None and entry.result == SchedulingResult.SUCCESS
    return went_well and entry.to_status in _STEPS


def _revisions(client: "Client", entries: Sequence["HistoryView"]) -> Mapping[str, int]:
    """The revisions of the routes in entries, by id; of those that are not found nothing."""
    of = {entry.entity.partition("/")[0] for entry in entries if entry.kind == "route"}
    found: dict[str, int] = {}
    with suppress(MusterError):
        for deployment in of:
            told = client.routes("all", deployment=deployment, limit=MOST_ROUTES)
            found |= {route.id: route.revision for route in told}
    return found


def history_table(
    console: Console,
    entries: Sequence["HistoryView"],
    now: float,
    revisions: Mapping[str, int] = MappingProxyType({}),
) -> Table:
    """A table of entries.

    Args:
        revisions: of routes, by id.
    """
    columns = [
        Column("WHEN", drops=1),
        Column("WHAT"),
        Column("HAPPENED"),
        Column("TIMES", right=True, drops=2),
        Column("WHY", flexible=True, wraps=True),
    ]
    return table(console, columns, (_row(entry, now, revisions) for entry in entries))


def _row(entry: "HistoryView", now: float, revisions: Mapping[str, int]) -> list[Text | str]:
    return [
        clock_time(entry.first_at, now),
        _subject(entry, revisions),
        _happened(entry),
        f"{entry.times:,}" if entry.times > 1 else "",
        "; ".join(sentence_of(reason) for reason in entry.reasons),
    ]


def _subject(entry: "HistoryView", revisions: Mapping[str, int]) -> str:
    """The name of the thing in an entry."""
    if entry.kind == "route":
        id_ = entry.entity.rpartition("/")[2]
        return f"{id_}, revision {revisions[id_]}" if id_ in revisions else id_
    if entry.kind == "task":
        return f"task {entry.entity.rpartition('/')[2]}"
    if entry.task_index is None:
        return entry.kind or entry.entity
    who = "gang" if entry.kernels > 1 else f"task {entry.task_index}"
    return f"{who}, attempt {entry.attempt}"


def _happened(entry: "HistoryView") -> Text:
    moved = entry.from_status is not None and entry.from_status != entry.to_status
    shown = status(entry.to_status)
    is_setting = entry.from_status is None and bool(entry.happened)
    if moved or is_setting or (entry.result == SchedulingResult.SUCCESS and not entry.reasons):
        at = ""
        if entry.agent and entry.to_status == "RUNNING":
            # Only the agent of a gang's first kernel is known.
            at = f" on {plain(entry.agent)}" + (" (kernel 0)" if entry.kernels > 1 else "")
        return Text((plain(entry.happened) or shown.plain) + at, style=shown.style)
    return Text(_STAYED.get(SchedulingResult(entry.result), ""))
