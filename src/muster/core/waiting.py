"""Sentences on the standing of waiting work: its place in the queue, the room that is kept for it,
and the holders of what it waits for.

Answers of `muster why` and `muster plan` carry these as facts (``core.views.placement``), because
ages and times of day are right only at the moment and in the time zone of reading. Whoever shows an
answer forms the sentences here, and adds none. Those with which an answer begins are in
``core.verdicts``, those of reasons in ``core.reasons``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from muster.core.reasons import ReasonKind
from muster.core.text import count, duration

if TYPE_CHECKING:
    from muster.core.views.placement import (
        HolderView,
        HoldingView,
        PlacementView,
        RequestView,
        ReservationView,
    )

NAMED = 5
"""Agents that a sentence names."""

WHO_ACTS: Mapping[str, str] = {
    ReasonKind.WAITING: "waiting: nothing to do, time cures it",
    ReasonKind.LIMIT: "limit: your quota",
    ReasonKind.REQUEST: "request: change what was asked for",
    ReasonKind.OPERATOR: "operator: the cluster needs attention",
}
"""By the kind of a reason who can act, and on what."""


def place(placement: "PlacementView") -> str:
    """The session's place in the order of its group's queue, and how much room it would find."""
    said = (
        f"Place {placement.position:,} of {placement.queue:,} in the queue of group "
        f"{placement.group}"
    )
    if placement.kernels_fit < placement.kernels > 1:
        fit = f"{placement.kernels_fit:,} of {placement.kernels:,} kernels"
        ahead_started = "once those ahead have started, " if placement.position > 1 else ""
        said += f"; {ahead_started}{fit} would find room"
    return f"{said}."


def kept(reservation: "ReservationView", now: float, clock_time: Callable[[float], str]) -> str:
    """The room that is kept for the session.

    Args:
        clock_time: tells a moment in the reader's time zone.
    """
    expected_at = reservation.expected_at
    if expected_at is None:
        agents = _some([kernel.agent for kernel in reservation.kernels])
        return f"What becomes free on {agents} is kept for it."
    left = f"in {duration(expected_at - now)}" if expected_at > now else "any moment"
    return (
        f"It starts at {clock_time(expected_at)} ({left}) at the latest: by then enough of what "
        f"runs has reached its timeout."
    )


def looked_at(request: "RequestView", agents: int) -> str:
    """How many agents were looked at for kernels with one request, and how many of the kernels
    would find room by themselves."""
    kernels, fit = request.kernels, request.fit
    each = "" if kernels == 1 else " each"
    said = f"{count(agents, 'agent')} looked at for {count(kernels, 'kernel')} asking for "
    said += f"{request.asks}{each}"
    if fit is not None and kernels > 1:
        said += f": by themselves {fit:,} of {kernels:,} would find room"
    return said


def held(holding: "HoldingView", now: float) -> str:
    """A resource that work waits for, and its holders."""
    said = f"{holding.held} of {holding.limit} {holding.resource}"
    if holding.agents:
        said += f" on {_some(holding.agents)}"
    if holding.quota is not None:
        said += f" of {holding.quota}"
    if not holding.holders:
        return f"{said} in use"
    # For sessions each holder's number is shown anyway.
    counted = holding.resource == "sessions"
    return f"{said} held by {', '.join(_holder(each, now, counted) for each in holding.holders)}"


def ahead(holder: "HolderView", now: float) -> str:
    """The session for which room is kept, so that the work waits behind it."""
    return f"ahead of it is {_holder(holder, now)}"


def _holder(holder: "HolderView", now: float, counted: bool = False) -> str:
    """train (yours, 4, for 2h10m); 3 sessions of others (6), unless ``counted`` by sessions."""
    facts = [holder.amount] if holder.amount and not counted else []
    if holder.name is None:
        those = count(holder.sessions, "session") if holder.sessions > 1 else "a session"
        return f"{those} of others" + (f" ({facts[0]})" if facts else "")
    if holder.since is not None:
        facts.append(f"for {duration(now - holder.since)}")
    if holder.sessions > 1:
        facts.insert(0, count(holder.sessions, "session"))
    whose = "yours" if holder.yours else holder.owner.user if holder.owner else "?"
    return f"{holder.name} ({', '.join([whose, *facts])})"


def _some(names: Sequence[str]) -> str:
    """Names, each once, the first of them if they are many."""
    each = list(dict.fromkeys(names))
    more = f" and {len(each) - NAMED} more" if len(each) > NAMED else ""
    return ", ".join(each[:NAMED]) + more
