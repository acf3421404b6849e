"""A slice as `muster show` tells it."""

from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from muster.cli.described.pool import price
from muster.cli.described.record import ago, heading, sentences
from muster.cli.screen import fields
from muster.cli.streams import plain
from muster.cli.words import count, duration, moment, sentence_of

if TYPE_CHECKING:
    from muster.core.views.pools import MachineView, SliceView


def slice_parts(slice_: "SliceView", now: float) -> list[RenderableType]:
    """A slice: its machines, whether it stays, and what it costs."""
    return [
        heading(slice_.id, slice_.status),
        fields(
            [
                ("reason", sentences(slice_.reason)),
                ("leaves", _leaves(slice_, now)),
                ("silent", sentences(slice_.silent)),
                ("stays", sentences(slice_.stays)),
                ("held by", slice_.held_by),
                ("pool", f"{slice_.pool}, of group {slice_.group}"),
                ("revision", f"{slice_.revision}{', outdated' if slice_.outdated else ''}"),
                ("runs", count(slice_.kernels, "kernel")),
                ("failed tries", str(slice_.tries) if slice_.tries else None),
                ("machines", _machines(slice_, now)),
                (
                    "cost",
                    f"{price(slice_.price)} an hour, {price(slice_.cost)} so far "
                    f"({slice_.machine_hours:,.2f} machine-hours)",
                ),
                ("times", _times(slice_, now)),
            ]
        ),
    ]


def _leaves(slice_: "SliceView", now: float) -> str | None:
    if slice_.doomed is None or slice_.finished_at is not None:
        return None
    said = sentence_of(slice_.doomed)
    if slice_.kernels and slice_.leave_by is None:
        return f"{said}; its work runs to the end"
    if slice_.kernels and slice_.leave_by is not None and slice_.leave_by > now:
        return f"{said}; its work may stay for {duration(slice_.leave_by - now)}"
    return said


def _machines(slice_: "SliceView", now: float) -> Text:
    lines = [plain(_machine(each, now)) for each in slice_.machines]
    if slice_.other_machines:
        lines.append(f"and {slice_.other_machines:,} more")
    return Text("\n".join(lines))


def _machine(machine: "MachineView", now: float) -> str:
    facts = [each for each in (machine.id, machine.address) if each]
    if machine.silent_since is not None:
        facts.append(f"silent for {duration(now - machine.silent_since)}")
    else:
        facts.append("joined" if machine.joined else "not joined")
    return f"{machine.name}: {', '.join(facts)}"


def _times(slice_: "SliceView", now: float) -> str:
    said = [f"asked for {moment(slice_.created_at)}"]
    if slice_.ready_at is not None:
        said.append(f"ready {duration(slice_.ready_at - slice_.created_at)} later")
    if slice_.finished_at is not None:
        said.append(f"gone {ago(slice_.finished_at, now)}")
    else:
        said.append(f"{slice_.status.lower()} for {duration(now - slice_.status_changed_at)}")
    return ", ".join(said)
