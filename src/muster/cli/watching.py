"""A view that is shown again and again on a terminal, until Ctrl-C."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from muster.cli.cluster import Cluster

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from muster.client import Client

REFRESH_S = 1.0


def watch(
    cluster: Cluster,
    look: "Callable[[Client, Console, int], RenderableType]",
    *,
    as_json: bool = False,
) -> None:
    """Show what ``look`` finds, in at most so many lines as it is given.

    Raises:
        click.BadParameter: there is no terminal, or JSON is asked for.
        MusterError: it cannot be looked at any more.
    """
    with suppress(KeyboardInterrupt):
        _watch(cluster, look, as_json=as_json)


def _watch(
    cluster: Cluster,
    look: "Callable[[Client, Console, int], RenderableType]",
    *,
    as_json: bool,
) -> None:
    from rich.console import Group, RenderableType
    from rich.live import Live
    from rich.text import Text

    from muster.cli.follow.feed import LostSight
    from muster.cli.screen import stdout
    from muster.client import Unreachable

    console = stdout()
    if as_json or not console.is_terminal:
        raise click.BadParameter("it needs a terminal: leave it out", param_hint="--watch")
    shown: RenderableType = Text()

    def heard(answers: bool) -> None:
        if not answers:  # what is shown stays, and grows old
            away = Text(f"no controller answers at {client.url}; still trying (Ctrl-C ends this)")
            live.update(Group(shown, away), refresh=True)

    with (
        cluster.client() as first,
        cluster.client(on_contact=heard) as client,
        Live(console=console, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        first.health()  # no controller at all is told at once
        while True:
            try:
                shown = look(client, console, max(console.height - 3, 1))
            except Unreachable as error:
                raise LostSight(error) from None
            live.update(shown, refresh=True)
            time.sleep(REFRESH_S)
