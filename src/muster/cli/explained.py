"""The explanation of placement for a session that waits, or would wait: its order, its room, and
the shortfalls of agents.

It is read from ``WhyView.placement`` and ``PlanView.placement``.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from muster.cli.screen import Column, plain, table
from muster.cli.words import clock_time, count, duration

if TYPE_CHECKING:
    from muster.core.views.placement import (
        HolderView,
        HoldingView,
        PlacementView,
        RequestView,
        ReservationView,
        ScoreView,
        ShortfallView,
        VictimView,
        WhyView,
    )

NAMED = 5
"""Agents and sessions that are named."""


def placement_shown(console: Console, placement: "PlacementView") -> list[RenderableType]:
    """The session's place in the order, the room kept for it, the work that would make room, and
    the shortfalls agent by agent."""
    place = f"Place {placement.position:,} of {placement.queue:,} in the queue"
    said = f"{place} of group {placement.group}"
    if placement.kernels_fit < placement.kernels > 1:
        fit = f"{placement.kernels_fit:,} of {placement.kernels:,} kernels"
        said += f"; once those ahead have started, {fit} would find room"
    parts: list[RenderableType] = [Text(f"\n{said}.")]
    if displaces := placement.displaces:
        parts += _displaced(console, displaces.victims)
    elif reservation := placement.reservation:
        parts.append(Text(_kept(reservation)))
    for request in placement.requests:
        parts += _request(console, request, placement.agents)
    if others := placement.other_requests:
        parts.append(Text(f"and {count(others, 'other request')} of its kernels"))
    return parts


def holders_shown(why: "WhyView") -> list[RenderableType]:
    """The holders of the resources that the work waits for, a line for each resource, and the
    session ahead of it."""
    parts: list[RenderableType] = [Text(f"  {_held(each)}") for each in why.held]
    if why.behind is not None:
        parts.append(Text(f"  ahead of it is {_holder(why.behind)}"))
    return parts


def _held(holding: "HoldingView") -> str:
    said = f"{holding.held} of {holding.limit} {plain(holding.resource)}"
    if holding.agents:
        said += f" on {_some(holding.agents)}"
    if holding.quota is not None:
        said += f" of {plain(holding.quota)}"
    if not holding.holders:
        return f"{said} in use"
    # For sessions each holder's number is shown anyway.
    counted = holding.resource == "sessions"
    return f"{said} held by {', '.join(_holder(each, counted) for each in holding.holders)}"


def _holder(holder: "HolderView", counted: bool = False) -> str:
    """train (yours, 4, for 2h10m); 3 sessions of others (6), unless ``counted`` by sessions."""
    facts = [holder.amount] if holder.amount and not counted else []
    if holder.name is None:
        those = count(holder.sessions, "session") if holder.sessions > 1 else "a session"
        return f"{those} of others" + (f" ({facts[0]})" if facts else "")
    if holder.since is not None:
        facts.append(f"for {duration(time.time() - holder.since)}")
    if holder.sessions > 1:
        facts.insert(0, count(holder.sessions, "session"))
    whose = "yours" if holder.yours else str(plain(holder.owner.user if holder.owner else "?"))
    return f"{plain(holder.name)} ({', '.join([whose, *facts])})"


def _kept(reservation: "ReservationView") -> str:
    """A sentence on the room kept for the first session that lacks room."""
    expected_at = reservation.expected_at
    if expected_at is None:
        agents = _some([kernel.agent for kernel in reservation.kernels])
        return f"What becomes free on {agents} is kept for it."
    now = time.time()
    left = f"in {duration(expected_at - now)}" if expected_at > now else "any moment"
    return (
        f"It starts at {clock_time(expected_at, now)} ({left}) at the latest: by then enough of "
        f"what runs has reached its timeout."
    )


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
    kernels, fit = request.kernels, request.fit
    each = "" if kernels == 1 else " each"
    said = f"{count(agents, 'agent')} looked at for {count(kernels, 'kernel')} asking for "
    said += f"{request.asks}{each}"
    if fit is not None and kernels > 1:
        said += f": by themselves {fit:,} of {kernels:,} would find room"
    parts: list[RenderableType] = [Text(f"\n{said}")]
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
    lacks = "; ".join(plain(reason.sentence) for reason in group.lacks)
    return [
        f"{group.agents:,}",
        lacks or Text("nothing: there is room", style="green"),
        group.nearest if group.lacks else "",
        ", ".join(group.examples),
    ]


def _some(names: Sequence[str]) -> str:
    """Names, each once, the first of them if they are many."""
    each = list(dict.fromkeys(map(plain, names)))
    more = f" and {len(each) - NAMED} more" if len(each) > NAMED else ""
    return ", ".join(each[:NAMED]) + more
