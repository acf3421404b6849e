"""An incident as `muster show` tells it, and a machine's incidents as its own page does."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from muster.cli.described.record import ago, heading, sentences
from muster.cli.screen import Column, fields, status, table
from muster.cli.streams import plain
from muster.cli.words import clock_time, count, duration, moment, sentence_of

if TYPE_CHECKING:
    from muster.core.views.health import CheckView, IncidentView

_BEING_HEALED = frozenset({"RESETTING", "REBOOTING"})


def incident_parts(incident: "IncidentView", now: float) -> list[RenderableType]:
    """An incident: the machine, what speaks against it, what was tried, and what checks found."""
    return [
        heading(incident.id, incident.status),
        fields(
            [
                ("agent", f"{incident.agent}, of group {incident.group}"),
                ("why", sentences(incident.why)),
                ("reason", sentences(incident.reason)),
                ("about", about(incident)),
                ("found by", f"job {plain(incident.job)}" if incident.job else None),
                ("takes work", _takes_work(incident, now)),
                ("calls for", incident.remedy),
                ("tried", _tried(incident)),
                ("checks", _checks(incident.checks, now)),
                ("times", _times(incident, now)),
            ]
        ),
    ]


def about(incident: "IncidentView") -> str:
    """The GPUs under suspicion, or the whole machine."""
    if not incident.devices:
        return "the machine"
    which = ", ".join(map(str, incident.devices))
    return f"{'GPU' if len(incident.devices) == 1 else 'GPUs'} {which}"


def incidents_table(console: Console, incidents: Sequence["IncidentView"], now: float) -> Table:
    """A machine's incidents, each on a line, newest first."""
    columns = [
        Column("INCIDENT"),
        Column("STATUS"),
        Column("BEGAN"),
        Column("LASTED", right=True, drops=2),
        Column("ROUNDS", right=True, drops=1),
        Column("WHY", flexible=True, wraps=True),
    ]
    return table(console, columns, (_row(each, now) for each in incidents))


def _row(incident: "IncidentView", now: float) -> list[Text | str]:
    return [
        incident.id,
        status(incident.status),
        clock_time(incident.began_at, now),
        lasted(incident, now),
        str(incident.rounds),
        plain(why(incident)),
    ]


def why(incident: "IncidentView") -> str:
    """The reason that a line has room for: the suspicion, or why the machine was isolated."""
    if incident.status == "ISOLATED" and incident.reason is not None:
        return sentence_of(incident.reason)
    return sentence_of(incident.why)


def lasted(incident: "IncidentView", now: float) -> str:
    """How long the incident took, or has taken so far."""
    return duration((incident.finished_at or now) - incident.began_at)


def _takes_work(incident: "IncidentView", now: float) -> str | None:
    if incident.finished_at is not None:
        return None
    if not incident.is_out:
        return "yes: it waits for its turn to be taken out of work"
    if incident.leave_by is not None and incident.leave_by > now:
        return f"no; any work still there has to leave in {duration(incident.leave_by - now)}"
    return "no"


def _tried(incident: "IncidentView") -> str | None:
    """The rounds of healing, and the means of the last."""
    said = []
    if incident.rounds:
        said.append(count(incident.rounds, "round"))
    if incident.heal is not None:
        is_under_way = incident.status in _BEING_HEALED
        said.append(f"{'under way' if is_under_way else 'last'}: {incident.heal}")
    if incident.unknowns:
        said.append(f"{count(incident.unknowns, 'check')} in a row found out nothing")
    return ", ".join(said) or None


def _checks(checks: Sequence["CheckView"], now: float) -> Text | None:
    lines = [
        f"{clock_time(each.at, now)}, after {duration(each.took_s)}: {plain(sentence_of(each))}"
        + (f"\n  also: {plain(each.rest)}" if each.rest else "")
        for each in checks
    ]
    return Text("\n".join(lines)) if lines else None


def _times(incident: "IncidentView", now: float) -> str:
    said = [f"began {moment(incident.began_at)}"]
    if incident.finished_at is not None:
        said.append(f"ended {ago(incident.finished_at, now)}, {lasted(incident, now)} later")
    else:
        for_s = now - incident.status_changed_at
        said.append(f"{incident.status.lower()} for {duration(for_s)}")
    return ", ".join(said)
