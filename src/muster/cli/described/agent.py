"""An agent as `muster show` tells it."""

from typing import TYPE_CHECKING

from rich.console import RenderableType

from muster.cli.described.record import ago, heading, sentences
from muster.cli.screen import fields, plain
from muster.cli.words import count, moment
from muster.core.states import AgentBar

if TYPE_CHECKING:
    from muster.core.views.cluster import AgentView


def agent_parts(agent: "AgentView", now: float) -> list[RenderableType]:
    """An agent: its place, what it has and how much of that is free."""
    kernels = count(agent.kernels, "kernel")
    devices = (f"{each.index}: {each.model or 'gpu'}" for each in agent.devices)
    return [
        heading(agent.name, agent.status, agent.id),
        fields(
            [
                ("reason", sentences(agent.reason)),
                ("takes work", _closed(agent.barred, agent.bar_note, agent.withheld)),
                ("group", agent.group),
                ("host", agent.host),
                ("version", agent.version),
                ("has", agent.capacity.resources().describe()),
                ("free", agent.free.resources().describe() if agent.connected else None),
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


def _seen(agent: "AgentView", now: float) -> str:
    if agent.seen_at is None:
        return "not heard since the controller started"
    return f"seen {ago(agent.seen_at, now)}"


def _closed(bar: AgentBar | None, note: str, withheld: str) -> str | None:
    """The answer to whether an agent takes new work, where it takes none; nothing is said of
    others."""
    if bar is not None:
        return plain(f"no: {bar}, {note}" if note else f"no: {bar}")
    return plain(f"no: {withheld}") if withheld else None
