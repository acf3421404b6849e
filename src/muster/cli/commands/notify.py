"""``muster notify``."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import click
from rich.text import Text

from muster.cli.arguments import AsJson
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.command_group import CommandGroup
from muster.cli.parameters import Argument, Option, annotated
from muster.cli.screen import Column, show_listing, status
from muster.cli.streams import plain, print_json
from muster.cli.words import duration, sentence_of

if TYPE_CHECKING:
    from muster.core.views.notices import NoticeView


@click.group(cls=CommandGroup)
def notify() -> None:
    """List notices of ended work, and try their channels."""


@notify.command(name="list")
@annotated
@on_cluster
def list_notices(
    cluster: Cluster,
    every: Annotated[
        bool, Option("--all", "-a", help="Include those that were sent, or given up.")
    ] = False,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Show so many of the newest.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the notices that wait, and why; `muster why NOTICE` tells more."""
    with cluster.client() as client:
        found = client.notices("all" if every else "live", limit=limit + 1)
    columns = [
        Column("ID"),
        Column("STATUS"),
        Column("AGE", right=True, drops=2),
        Column("TELLS OF", drops=3),
        Column("CHANNEL", shrinks=12),
        Column("FAILED TRIES", right=True, drops=1),
        Column("WHY", flexible=True, wraps=True),
    ]
    now = time.time()
    show_listing(found, columns, lambda notice: _row(notice, now), as_json=as_json, limit=limit)


def _row(notice: "NoticeView", now: float) -> list[Text | str]:
    return [
        notice.id,
        status(notice.status),
        duration(now - notice.created_at),
        notice.subject or "a test",
        plain(notice.channel),
        str(notice.tries) if notice.tries else "",
        plain(sentence_of(notice.reason)) if notice.reason else "",
    ]


@notify.command(name="test")
@annotated
@on_cluster
def try_channel(
    cluster: Cluster,
    channel: Annotated[
        str,
        Argument(
            metavar="URL",
            help="As in `notify:` of a spec; - reads it from standard input, so that neither the "
            "shell's history nor the list of processes has it.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Send a notice to a channel now, and tell what became of it."""
    if channel == "-":
        channel = sys.stdin.readline().strip()
    with cluster.client() as client:
        notice = client.try_channel(channel)
    if as_json:
        print_json(notice)
    elif notice.status == "SENT":
        click.echo(f"sent to {notice.channel}")
    if notice.status != "SENT":
        why = notice.reason
        said = "no word of it yet" if why is None else f"{sentence_of(why)}. {why.remedy}".strip()
        raise click.ClickException(f"not sent to {notice.channel}: {said}")
