"""``muster ps``."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import click

from muster.cli import kinds
from muster.cli.arguments import AsJson, InGroup
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.completion import complete_agent
from muster.cli.nearest import check_filters
from muster.cli.parameters import Option
from muster.cli.words import sentence_of, with_local_moments
from muster.cli.work_filter import (
    WorkFilter,
    name_option,
    owner_option,
    state_option,
    states_asked,
)
from muster.core.errors import MusterError
from muster.core.text import count, either
from muster.core.views.base import RecordView

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from muster.client import Client

EXPLAINED = 10
"""Waiting jobs and sessions whose reason is shown; each costs a request."""


@on_cluster
def ps(
    cluster: Cluster,
    show_all: Annotated[bool, Option("--all", "-a", help="Include what has ended.")] = False,
    watched: Annotated[
        bool, Option("--watch", "-w", help="Keep showing them as they change.", field="watch")
    ] = False,
    state: Annotated[
        str | None,
        state_option("Show these states, as waiting,running or failed; live, ended or all."),
    ] = None,
    name: Annotated[str | None, name_option("Show those of this name, or as 'train*'.")] = None,
    owner: Annotated[
        str | None, owner_option("Show those of this user, or of domain/project/user.")
    ] = None,
    group: InGroup = None,
    agent: Annotated[
        str | None,
        Option(
            "--agent",
            metavar="AGENT",
            help="Show those that run on this agent, replicas of deployments too.",
            autocompletion=complete_agent,
        ),
    ] = None,
    replicas: Annotated[
        bool,
        Option("--replicas", help="Include the sessions of deployments, which `routes` lists."),
    ] = False,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Show so many of the newest.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List jobs and sessions, newest first.

    Replicas of deployments are sessions, too: --replicas lists them, `muster routes` says more.
    """
    wanted = WorkFilter(
        states_asked(state, "all" if show_all else "live"), name, owner, group, replicas, agent
    )
    if watched:
        from muster.cli.watching import watch

        def look(client: "Client", console: "Console", lines: int) -> "RenderableType":
            from muster.cli.work_table import work_table

            found = wanted.look(client, min(limit, lines))[: min(limit, lines)]
            return work_table(console, found, reasons(client, found), time.time())

        watch(cluster, look, as_json=as_json)
        return
    with cluster.client() as client:
        found = wanted.look(client, limit)
        shown = found[:limit]
        if not shown and not as_json:
            check_filters(client, group=group)
        why = {} if as_json else reasons(client, shown)
    if as_json or shown:
        _show(shown, why, as_json=as_json)
    else:
        click.echo(_nothing(wanted), err=True)
    if len(found) > limit:
        from muster.cli.screen import tell_left_out

        tell_left_out(found, limit)


def _show(work: Sequence[RecordView], why: Mapping[str, str], *, as_json: bool) -> None:
    # Imported late: an empty list need not wait for rich.
    from muster.cli.screen import stdout, write
    from muster.cli.streams import print_json
    from muster.cli.work_table import work_table

    if as_json:
        print_json([_as_json(each) for each in work])
    else:
        console = stdout()
        write(console, work_table(console, work, why, time.time()))


def _as_json(work: RecordView) -> dict[str, Any]:
    import msgspec

    keys: dict[str, Any] = msgspec.to_builtins(work)
    return {"kind": kinds.of_record(work).name} | keys


def _nothing(wanted: WorkFilter) -> str:
    if wanted.agent is not None:
        return f"no job or session that matches runs on agent {wanted.agent}"
    if wanted == WorkFilter(("live",)):
        return "no job is waiting or running; `muster ps -a` lists those that ended"
    words = either(each.replace("_", " ") for each in wanted.states)
    state = "" if "all" in wanted.states else f"{words} "
    more = "; `-a` looks at what has ended too" if wanted.states == ("live",) else ""
    return f"no {state}{either(kind.name for kind in kinds.work())} matches{more}"


def reasons(client: "Client", work: Sequence[RecordView]) -> dict[str, str]:
    """Reasons by id: why the first few wait of which nothing runs, why others ended, of which
    processes are left, and whose machines are not heard."""
    why = {each.id: sentence_of(each.reason) for each in work if each.reason is not None}
    for each in work:
        if left := kinds.of_work(each).kernels_left(each):
            still = f"{count(left, 'kernel')} may still run"
            why[each.id] = "; ".join(filter(None, (why.get(each.id), still)))
        if (silence := kinds.of_work(each).silence(each)) is not None:
            why[each.id] = "; ".join(filter(None, (why.get(each.id), sentence_of(silence))))
    waiting = [each for each in work if each.id not in why and kinds.of_work(each).stands(each)]
    for each in waiting[:EXPLAINED]:
        with suppress(MusterError):  # the work may have ended meanwhile
            answer = client.why(each.id)
            said = answer.reasons[0].sentence if answer.reasons else answer.verdict
            why[each.id] = with_local_moments(said)
    return why
