"""The explanation of placement for a session that waits, or would wait: its order, its room, and
the shortfalls of agents. Its sentences are those of ``core.waiting``; the tables are laid out here.

It is read from ``WhyView.placement`` and ``PlanView.placement``.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from muster.cli.screen import Column, plain, table
from muster.cli.words import clock_time, count
from muster.core import waiting

if TYPE_CHECKING:
    from muster.core.views.placement import (
        PlacementView,
        RequestView,
        ScoreView,
        ShortfallView,
        VictimView,
        WhyView,
    )


def placement_shown(console: Console, placement: "PlacementView") -> list[RenderableType]:
    """The session's place in the order, the room kept for it, the work that would make room, and
    the shortfalls agent by agent."""
    parts: list[RenderableType] = [Text(f"\n{plain(waiting.place(placement))}")]
    if displaces := placement.displaces:
        parts += _displaced(console, displaces.victims)
    elif reservation := placement.reservation:
        now = time.time()
        kept = waiting.kept(reservation, now, lambda moment: clock_time(moment, now))
        parts.append(Text(plain(kept)))
    for request in placement.requests:
        parts += _request(console, request, placement.agents)
    if others := placement.other_requests:
        parts.append(Text(f"and {count(others, 'other request')} of its kernels"))
    return parts


def holders_shown(why: "WhyView") -> list[RenderableType]:
    """The holders of the resources that the work waits for, a line for each resource, and the
    session ahead of it."""
    now = time.time()
    said = [waiting.held(each, now) for each in why.held]
    if why.behind is not None:
        said.append(waiting.ahead(why.behind, now))
    return [Text(f"  {plain(each)}") for each in said]


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


def _request(console: Console, request: "RequestView", agents: int) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(f"\n{plain(waiting.looked_at(request, agents))}")]
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
    shortfalls = "; ".join(plain(reason.sentence) for reason in group.shortfalls)
    return [
        f"{group.agents:,}",
        shortfalls or Text("nothing: there is room", style="green"),
        group.nearest if group.shortfalls else "",
        ", ".join(group.examples),
    ]
