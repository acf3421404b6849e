"""Choosing jobs and sessions by state, name, owner and group."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from muster.cli import kinds
from muster.cli.completion import complete_user
from muster.cli.parameters import Option
from muster.core.views.base import RecordView

if TYPE_CHECKING:
    from muster.cli.kinds.kind import WorkKind
    from muster.client import Client

LOOKED_AT = 1000
"""Jobs and sessions among which those of a state are looked for that people are shown."""
_ANY = ("live", "ended", "all")


def state_option(help: str) -> Option:
    """The option by which work is chosen by its states."""
    return Option(
        "--state",
        "-s",
        metavar="STATES",
        help=help,
        autocompletion=lambda _, typed: complete_states(typed),
    )


def name_option(help: str) -> Option:
    """The option by which work is chosen by its name."""
    return Option("--name", metavar="NAME", help=help)


def owner_option(help: str) -> Option:
    """The option by which work is chosen by its owner."""
    return Option("--owner", metavar="USER", help=help, autocompletion=complete_user)


class WorkFilter(msgspec.Struct, frozen=True):
    """The filters of the list: the newest jobs and sessions in any of the states, if they have such
    a state."""

    states: Sequence[str]
    name: str | None = None
    owner: str | None = None
    group: str | None = None
    replicas: bool = False
    agent: str | None = None

    def look(self, client: "Client", limit: int) -> list[RecordView]:
        """The work, newest first, with one more than the limit if there is more."""
        filters: dict[str, Any] = {
            "name": self.name,
            "owner": self.owner,
            "group": self.group,
        }
        found: dict[str, RecordView] = {}
        for kind in kinds.work():
            if self.agent is not None and not kind.is_on_agents:
                continue  # its sessions are
            beside: dict[str, Any] = {}
            if kind.has_replicas and (self.replicas or self.agent is not None):
                beside["replicas"] = True
            if self.agent is not None:
                beside["agent"] = self.agent
            for state in self.states:
                for each in _newest(client, kind, state, limit + 1, **filters, **beside):
                    found[each.id] = each
        # After its kind an id tells the time of creation.
        newest = sorted(found, key=lambda id_: id_.partition("-")[2], reverse=True)
        return [found[id_] for id_ in newest[: limit + 1]]


def _newest(
    client: "Client", kind: "WorkKind[Any, Any]", state: str, limit: int, **filters: Any
) -> Sequence[RecordView]:
    """The newest work of a kind in one state: one of its own, or one that people are shown; or in
    any of several."""
    if state in _ANY:
        asked = "current" if state == "live" else state
        return kind.newest(client, asked, limit=limit, **filters)
    standing = state.upper()
    if standing not in kind.scopes:
        of_kind = standing in kind.states.live | kind.states.terminal
        return kind.newest(client, state, limit=limit, **filters) if of_kind else ()
    scope = kind.scopes[standing]
    most = limit if scope == state else max(limit, LOOKED_AT)
    found = kind.newest(client, scope, limit=most, **filters)
    return [each for each in found if kind.standing(each) == standing][:limit]


def states_asked(text: str | None, default: str) -> Sequence[str]:
    """The states that the text of --state asks for, with commas between them; the ``default``
    without one.

    Raises:
        click.BadParameter: one of them is no state of jobs or sessions.
    """
    if text is None:
        return (default,)
    words = [each.strip().lower().replace(" ", "_").replace("-", "_") for each in text.split(",")]
    for word in words:
        if word not in _states():
            raise click.BadParameter(
                f"{word!r} is no state: expected one of {', '.join(_states())}, or several with "
                "commas between them",
                param_hint="--state",
            )
    return tuple(dict.fromkeys(words))


def _states() -> list[str]:
    """The states that may be asked for: those of all work, those in which people see it, and words
    for several of them."""
    known = {
        state
        for kind in kinds.work()
        for state in (*kind.states.live, *kind.states.terminal, *kind.scopes)
    }
    return [*_ANY, *sorted(state.lower() for state in known)]


def complete_states(typed: str) -> list[tuple[str, str]]:
    """States that continue the typed text."""
    before, comma, last = typed.rpartition(",")
    return [(f"{before}{comma}{each}", "") for each in _states() if each.startswith(last)]
