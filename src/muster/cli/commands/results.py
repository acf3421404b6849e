"""``muster results``."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import click

from muster.cli.arguments import AsJson, Ref, parse_ref
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.nearest import suggesting
from muster.cli.parameters import Option
from muster.cli.request import pairs
from muster.cli.screen import Column, stdout, table, write
from muster.cli.streams import plain, print_json, say
from muster.cli.words import count

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.work import TaskDetail

PAGE = 1_000
"""Tasks of a request; those of the first decide which columns a table has."""
RESULT, MORE = "result", "more"
"""Columns: of a result that is no JSON object, and of keys that no task of the first page had."""


@on_cluster
def results(
    cluster: Cluster,
    ref: Ref,
    where: Annotated[
        list[str] | None,
        Option(
            "--where",
            metavar="NAME=VALUE",
            help="Take the tasks with this value of a parameter; may be repeated.",
        ),
    ] = None,
    as_csv: Annotated[bool, Option("--csv", help="Print CSV, of all tasks.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the results of a job's tasks, with their parameters.

    A result is what a task of a job with a matrix wrote to $MUSTER_RESULT: keys of a JSON object
    are columns."""
    values = pairs(where or [], "--where", "a parameter and its value, such as lr=0.1")
    if parse_ref(ref).index is not None:
        raise click.BadParameter(f"{ref!r} is one task: `muster show {ref}` tells its result")
    with cluster.client() as client, suggesting(client, ref):
        job = client.job(ref)
        pages = _pages(client, job.id, values)
        if as_json:
            print_json([row for page in pages for row in page])
            return
        first = next(pages, [])
        columns = _columns(first)
        if as_csv:
            _print_csv(columns, first, pages)
            return
    total = job.tasks_total
    shown = [Column(name.upper()) for name in columns]
    rows = [[plain(_text(row.get(name))) for name in columns] for row in first]
    write(stdout(), table(stdout(), shown, rows))
    if not values and len(first) < total:
        say(f"{len(first):,} of {count(total, 'task')} shown; --csv has all of them")


def _pages(client: "Client", job: str, where: Mapping[str, str]) -> Iterator[list[dict[str, Any]]]:
    """The rows of all tasks, a page of them at a time."""
    offset = 0
    while True:
        page = client.tasks(job, where=where or None, offset=offset, limit=PAGE)
        if not page.items:
            return
        yield [_row(task) for task in page.items]
        offset += len(page.items)
        if offset >= page.total:
            return


def _row(task: "TaskDetail") -> dict[str, Any]:
    seconds = None
    if task.started_at is not None and task.finished_at is not None:
        seconds = round(task.finished_at - task.started_at, 3)
    row: dict[str, Any] = {
        "task": task.index,
        **task.parameters,
        "state": task.state.lower(),
        "exit": task.exit_code,
        "seconds": seconds,
    }
    last = task.attempts[-1] if task.attempts else None
    for name, value in _result(None if last is None else last.result).items():
        row[f"{RESULT}.{name}" if name in row else name] = value
    return row


def _result(text: str | None) -> dict[str, Any]:
    """The columns of a result."""
    import json

    if text is None:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        return {RESULT: text.strip()}
    return found if isinstance(found, dict) else {RESULT: found}


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    found: dict[str, None] = {}
    for row in rows:
        found.update(dict.fromkeys(row))
    return [*found]


def _print_csv(
    columns: list[str], first: list[dict[str, Any]], pages: Iterator[list[dict[str, Any]]]
) -> None:
    import csv
    import sys

    writer = csv.writer(sys.stdout, lineterminator="\n")
    following = next(pages, None)
    has_more = following is not None
    writer.writerow([*columns, MORE] if has_more else columns)
    page: list[dict[str, Any]] | None = first
    while page is not None:
        for row in page:
            cells = [_text(row.get(name)) for name in columns]
            more = {name: value for name, value in row.items() if name not in columns}
            writer.writerow([*cells, _text(more or None)] if has_more else cells)
        page, following = following, next(pages, None)


def _text(value: Any) -> str:
    """The value of a cell: what is no text as JSON writes it."""
    import json

    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
