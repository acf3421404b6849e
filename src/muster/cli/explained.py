"""The explanation of placement for a session that waits, or would wait: its order, its room, and
the shortfalls of agents.

It is read from ``WhyView.placement`` and ``PlanView.placement``, whose sentences the controller has
formed; the tables are laid out here.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from muster.cli.screen import Column, table
from muster.cli.streams import plain
from muster.cli.words import count, sentence_of

if TYPE_CHECKING:
    from muster.core.views.placement import (
        PlacementView,
        RequestView,
        ScoreView,
        ShortfallView,
        VictimView,
    )


def placement_shown(console: Console, placement: "PlacementView") -> list[RenderableType]:
    """The session's place in the order, the room kept for it, the work that would make room, and
    the shortfalls agent by agent."""
    parts: list[RenderableType] = [Text(f"\n{plain(sentence_of(placement))}")]
    if displaces := placement.displaces:
        parts += _displaced(console, displaces.victims)
    elif reservation := placement.reservation:
        parts.append(Text(plain(sentence_of(reservation))))
    for request in placement.requests:
        parts += _request(console, request)
    if others := placement.other_requests:
        parts.append(Text(f"and {count(others, 'other request')} of its kernels"))
    return parts


def _displaced(console: Console, victims: Sequence["VictimView"]) -> list[RenderableType]:
    columns = [
        Column("MAKES ROOM FOR IT", flexible=True),
        Column("PRIORITY", right=True),
        Column("KERNELS", right=True),
    ]
    rows = [
        [
            plain(victim.name)
            if victim.name is not None
            else f"{count(victim.sessions, 'session')} of others",
            str(victim.priority),
            f"{victim.kernels:,}",
        ]
        for victim in victims
    ]
    return [Text(), table(console, columns, rows)]


def _request(console: Console, request: "RequestView") -> list[RenderableType]:
    parts: list[RenderableType] = [Text(f"\n{plain(sentence_of(request))}")]
    if scores := request.scores:
        parts.append(Text(f"  best first: {_scored(scores)}"))
    if not request.groups:
        return parts
    columns = [
        Column("AGENTS", right=True),
        Column("WHAT THEY LACK", flexible=True, wraps=True),
        Column("NEAREST", drops=1),
        Column("SUCH AS", drops=2),
    ]
    parts.append(table(console, columns, [_agents(group) for group in request.groups]))
    if others := request.other_agents:
        lack = "lacks" if others == 1 else "lack"
        parts.append(Text(f"and {count(others, 'agent')} that {lack} otherwise"))
    return parts


def _scored(scores: Sequence["ScoreView"]) -> str:
    # Adding 0.0 makes 0 of -0.
    return ", ".join(f"{plain(each.agent)} (score {each.score + 0.0:g})" for each in scores)


def _agents(group: "ShortfallView") -> Sequence[Text | str]:
    shortfalls = "; ".join(plain(sentence_of(reason)) for reason in group.shortfalls)
    return [
        f"{group.agents:,}",
        shortfalls or Text("nothing: there is room", style="green"),
        group.nearest if group.shortfalls else "",
        ", ".join(group.examples),
    ]
