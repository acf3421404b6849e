"""``muster ps``."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import click
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from muster.cli.arguments import AsJson
from muster.cli.follow.feed import LostSight
from muster.cli.follow.progress import done
from muster.cli.parameters import Option
from muster.cli.screen import Column, print_json, status, stderr, stdout, table, write
from muster.cli.target import Target, on_cluster
from muster.cli.words import duration, shorten
from muster.core.errors import MusterError
from muster.core.states import JobState

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views import JobView

EXPLAINED = 10
"""Waiting jobs whose reason is asked for; each costs a request."""
REFRESH_S = 1.0


@on_cluster
def ps(
    target: Target,
    show_all: Annotated[bool, Option("--all", "-a", help="Also jobs that ended.")] = False,
    watch: Annotated[
        bool, Option("--watch", "-w", help="Keep showing them as they change.")
    ] = False,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Newest jobs shown.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    state = "all" if show_all else "live"
    if watch and (as_json or not stdout().is_terminal):
        raise click.BadParameter("it needs a terminal: leave it out", param_hint="--watch")
    if watch:
        with suppress(KeyboardInterrupt):
            _watch(target, state, limit)
        return
    with target.client() as client:
        jobs = client.jobs(state, limit=limit + (not as_json))
        if as_json:
            print_json(jobs)
            return
        why = reasons(client, jobs[:limit])
    if jobs:
        console = stdout()
        write(console, jobs_table(console, jobs[:limit], why, time.time()))
    elif not show_all:
        stderr().print(Text("no job is waiting or running; `muster ps -a` lists those that ended"))
    if len(jobs) > limit:
        stderr().print(Text(f"older jobs are left out: --limit {limit * 10} shows more"))


def _watch(target: Target, state: str, limit: int) -> None:
    from rich.console import Group
    from rich.live import Live

    from muster.client import Unreachable

    console = stdout()
    shown: RenderableType = Text()

    def heard(answers: bool) -> None:
        if not answers:  # the table stays, and grows old
            away = Text(f"no controller answers at {client.url}; still trying (Ctrl-C ends this)")
            live.update(Group(shown, away), refresh=True)

    with (
        target.client() as first,
        target.client(on_contact=heard) as client,
        Live(console=console, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        first.health()  # nothing that answers at all is told at once
        while True:
            try:
                jobs = client.jobs(state, limit=min(limit, max(console.height - 3, 1)))
                why = reasons(client, jobs)
            except Unreachable as error:
                raise LostSight(error) from None
            shown = jobs_table(console, jobs, why, time.time())
            live.update(shown, refresh=True)
            time.sleep(REFRESH_S)


def reasons(client: "Client", jobs: Sequence["JobView"]) -> dict[str, str]:
    """By id: why the jobs that wait do so, asked for the first few, and why others ended."""
    why = {job.id: job.reason.sentence for job in jobs if job.reason is not None}
    waiting = [job for job in jobs if job.state is JobState.PENDING and job.id not in why]
    for job in waiting[:EXPLAINED]:
        with suppress(MusterError):  # it may have ended meanwhile
            answer = client.why(job.id)
            why[job.id] = answer.reasons[0].sentence if answer.reasons else answer.verdict
    return why


def jobs_table(
    console: Console, jobs: Sequence["JobView"], why: Mapping[str, str], now: float
) -> Table:
    short = shorten(job.id for job in jobs)
    columns = [
        Column("ID"),
        Column("NAME", shrinks=16),
        Column("STATE"),
        Column("TASKS", right=True, drops=1),
        Column("AGE", right=True, drops=2),
        Column("GROUP", drops=3),
        Column("WHY", flexible=True),
    ]
    return table(console, columns, (_row(job, short, why, now) for job in jobs))


def _row(
    job: "JobView", short: Mapping[str, str], why: Mapping[str, str], now: float
) -> list[Text | str]:
    return [
        short[job.id],
        job.name,
        status(job.state),
        f"{done(job)}/{job.tasks_total}",
        duration(now - job.submitted_at),
        job.group,
        why.get(job.id, ""),
    ]
