"""An agent as `muster show` tells it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from muster.cli.described.incident import about, incidents_table, why
from muster.cli.described.record import ago, heading, sentences
from muster.cli.screen import Column, fields, status, table
from muster.cli.streams import plain
from muster.cli.words import count, duration, moment
from muster.core.machine_sentences import kernels_of_others
from muster.core.resources import KERNELS, format_amount, format_milli

if TYPE_CHECKING:
    from muster.core.views.cluster import AgentView, HeldKernelPage, HeldKernelView
    from muster.core.views.health import IncidentView


def agent_parts(
    console: Console,
    agent: "AgentView",
    incidents: "Sequence[IncidentView]",
    now: float,
    held: "HeldKernelPage | None" = None,
) -> list[RenderableType]:
    """An agent: its place, what it has and how much of that is free, the kernels that hold the
    rest, if they are known, and its ``incidents``, newest first."""
    kernels = count(agent.kernels, "kernel")
    devices = (f"{each.index}: {each.model or 'gpu'}" for each in agent.devices)
    parts: list[RenderableType] = [
        heading(agent.name, agent.status, agent.id),
        fields(
            [
                ("reason", sentences(agent.reason)),
                ("takes work", _closed(agent)),
                ("its work", _leaves(agent, now)),
                ("health", _health(incidents, now)),
                ("may be slow", plain(". ".join(agent.stragglers))),
                ("group", agent.group),
                ("host", agent.host),
                ("version", agent.version),
                ("has", agent.capacity.resources().describe()),
                ("free", _free(agent) if agent.connected else None),
                ("gpus", plain(", ".join(devices))),
                ("runs", f"{kernels}, {agent.prefilled:,} more in its backlog"),
                (
                    "attributes",
                    plain(", ".join(f"{key}={said}" for key, said in agent.attributes.items())),
                ),
                ("times", f"joined {moment(agent.joined_at)}, {_seen(agent, now)}"),
            ]
        ),
    ]
    if held is not None:
        parts += kernels_parts(console, held, now)
    if incidents:
        parts += [Text(), incidents_table(console, incidents, now)]
    return parts


def _free(agent: "AgentView") -> str:
    """How much is free of each resource that the agent has, also where that is nothing."""
    free = agent.free.resources().as_dict()
    amounts = (
        f"{format_amount(name, free.get(name, 0))} {name}"
        for name in agent.capacity.resources().as_dict()
        if name != KERNELS
    )
    return ", ".join(amounts)


def _health(incidents: "Sequence[IncidentView]", now: float) -> str | None:
    """The state of the incident that has not ended; nothing is said of a healthy machine."""
    for each in incidents:
        if each.finished_at is None:
            for_s = duration(now - each.status_changed_at)
            where = f"{about(each)}, " if each.devices else ""
            return plain(f"{each.status.lower()} for {for_s} ({where}{why(each)})")
    return None


def _seen(agent: "AgentView", now: float) -> str:
    if agent.seen_at is None:
        return "not heard since the controller started"
    return f"seen {ago(agent.seen_at, now)}"


def _closed(agent: "AgentView") -> str | None:
    """The answer to whether an agent takes new work, where it takes none; nothing is said of
    others."""
    if agent.barred is not None:
        note = f", {agent.bar_note}" if agent.bar_note else ""
        return plain(f"no: {agent.barred}{note}")
    why = agent.ill or agent.withheld
    return plain(f"no: {why}") if why else None


def _leaves(agent: "AgentView", now: float) -> str | None:
    """When the work of an agent that is drained has to have left."""
    if agent.leave_by is None or not agent.kernels:
        return None
    if agent.leave_by <= now:
        return "is stopped: its time to leave is over"
    return f"is stopped {moment(agent.leave_by)}, in {duration(agent.leave_by - now)}"


def kernels_parts(console: Console, held: "HeldKernelPage", now: float) -> list[RenderableType]:
    """The kernels that hold room of an agent: those that the reader may see, and the number of the
    others."""
    parts: list[RenderableType] = []
    if held.items:
        columns = [
            Column("RUNS", shrinks=16),
            Column("OWNER", shrinks=12),
            Column("STATE"),
            Column("GPUS", right=True),
            Column("ON GPU"),
            Column("CPU", right=True, drops=2),
            Column("MEMORY", right=True, drops=1),
            Column("FOR", right=True),
        ]
        parts += [Text(), table(console, columns, (_kernel(each, now) for each in held.items))]
    if held.others:
        parts += [Text(), Text(kernels_of_others(held.others, held.other_gpu_milli))]
    return parts


def _kernel(kernel: "HeldKernelView", now: float) -> list[Text | str]:
    holds = kernel.resources
    return [
        plain(kernel.work if kernel.owner is not None else f"({kernel.service} of the machine)"),
        "-" if kernel.owner is None else plain(kernel.owner.user),
        status(kernel.status),
        format_milli(holds.gpu_milli) if holds.gpu_milli else "-",
        ",".join(str(share.index) for share in kernel.devices) or "-",
        format_amount("cpu", holds.cpu_milli),
        format_amount("memory", holds.memory_bytes),
        duration(now - kernel.since),
    ]
