"""``muster ps``."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import click

from muster.cli import kinds
from muster.cli.arguments import AsJson, InGroup
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.completion import complete_user
from muster.cli.parameters import Option
from muster.core.errors import MusterError
from muster.core.text import either
from muster.core.views.base import RecordView

if TYPE_CHECKING:
    from muster.client import Client

EXPLAINED = 10
"""Waiting jobs and sessions whose reason is shown; each costs a request."""
REFRESH_S = 1.0
_ANY = ("live", "ended", "all")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The filters of the list: the newest jobs and sessions of one state, if they have such a
    state."""

    state: str
    name: str | None = None
    owner: str | None = None
    group: str | None = None

    def look(self, client: "Client", limit: int) -> list[RecordView]:
        """The work, newest first, with one more than the limit if there is more."""
        filters = {"name": self.name, "owner": self.owner, "group": self.group}
        found: list[RecordView] = []
        for kind in kinds.work():
            if self.state in _ANY or self.state.upper() in kind.states.live | kind.states.terminal:
                found += kind.newest(client, self.state, limit=limit + 1, **filters)
        # After its kind an id tells the time of creation.
        return sorted(found, key=lambda each: each.id.partition("-")[2], reverse=True)[: limit + 1]


@on_cluster
def ps(
    cluster: Cluster,
    show_all: Annotated[bool, Option("--all", "-a", help="Also what has ended.")] = False,
    watch: Annotated[
        bool, Option("--watch", "-w", help="Keep showing them as they change.")
    ] = False,
    state: Annotated[
        str | None,
        Option(
            "--state",
            "-s",
            metavar="STATE",
            help="As live, ended, running or failed.",
            autocompletion=lambda _, typed: [(s, "") for s in _states() if s.startswith(typed)],
        ),
    ] = None,
    name: Annotated[
        str | None, Option("--name", metavar="NAME", help="Of this name; or as 'train*'.")
    ] = None,
    owner: Annotated[
        str | None,
        Option(
            "--owner",
            metavar="USER",
            help="A user's, or domain/project/user's.",
            autocompletion=complete_user,
        ),
    ] = None,
    group: InGroup = None,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Newest ones shown.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List jobs and sessions, newest first."""
    wanted = Wanted(_state(state, show_all), name, owner, group)
    if watch:
        with suppress(KeyboardInterrupt):
            _watch(cluster, wanted, limit, as_json=as_json)
        return
    with cluster.client() as client:
        found = wanted.look(client, limit)
        shown = found[:limit]
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
    from muster.cli.screen import print_json, stdout, write
    from muster.cli.work_table import work_table

    if as_json:
        print_json([_as_json(each) for each in work])
    else:
        console = stdout()
        write(console, work_table(console, work, why, time.time()))


def _state(asked: str | None, show_all: bool) -> str:
    """
    Raises:
        click.BadParameter: the text is no state of jobs or sessions.
    """
    if asked is None:
        return "all" if show_all else "live"
    state = asked.lower().replace(" ", "_").replace("-", "_")
    if state not in _states():
        raise click.BadParameter(
            f"{asked!r} is no state: expected one of {', '.join(_states())}", param_hint="--state"
        )
    return state


def _states() -> list[str]:
    """The states that may be asked for: those of all work, and words for several of them."""
    known = {state for kind in kinds.work() for state in kind.states.live | kind.states.terminal}
    return [*_ANY, *sorted(state.lower() for state in known)]


def _as_json(work: RecordView) -> dict[str, Any]:
    import msgspec

    keys: dict[str, Any] = msgspec.to_builtins(work)
    return {"kind": kinds.of_record(work).name} | keys


def _nothing(wanted: Wanted) -> str:
    if wanted == Wanted("live"):
        return "no job is waiting or running; `muster ps -a` lists those that ended"
    state = "" if wanted.state == "all" else f"{wanted.state.replace('_', ' ')} "
    more = "; `-a` looks at what has ended too" if wanted.state == "live" else ""
    return f"no {state}{either(kind.name for kind in kinds.work())} matches{more}"


def _watch(cluster: Cluster, wanted: Wanted, limit: int, *, as_json: bool) -> None:
    from rich.console import Group, RenderableType
    from rich.live import Live
    from rich.text import Text

    from muster.cli.follow.feed import LostSight
    from muster.cli.screen import stdout
    from muster.cli.work_table import work_table
    from muster.client import Unreachable

    console = stdout()
    if as_json or not console.is_terminal:
        raise click.BadParameter("it needs a terminal: leave it out", param_hint="--watch")
    shown: RenderableType = Text()

    def heard(answers: bool) -> None:
        if not answers:  # the table stays, and grows old
            away = Text(f"no controller answers at {client.url}; still trying (Ctrl-C ends this)")
            live.update(Group(shown, away), refresh=True)

    with (
        cluster.client() as first,
        cluster.client(on_contact=heard) as client,
        Live(console=console, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        first.health()  # no controller at all is told at once
        while True:
            lines = min(limit, max(console.height - 3, 1))
            try:
                found = wanted.look(client, lines)[:lines]
                why = reasons(client, found)
            except Unreachable as error:
                raise LostSight(error) from None
            shown = work_table(console, found, why, time.time())
            live.update(shown, refresh=True)
            time.sleep(REFRESH_S)


def reasons(client: "Client", work: Sequence[RecordView]) -> dict[str, str]:
    """Reasons by id: why the first few waiting ones wait, and why others ended."""
    why = {each.id: each.reason.sentence for each in work if each.reason is not None}
    waiting = [
        each
        for each in work
        if each.id not in why and each.status == kinds.of_work(each).states.initial
    ]
    for each in waiting[:EXPLAINED]:
        with suppress(MusterError):  # the work may have ended meanwhile
            answer = client.why(each.id)
            why[each.id] = answer.reasons[0].sentence if answer.reasons else answer.verdict
    return why
