"""``muster agents``."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.cli.arguments import AsJson
from muster.cli.parameters import Option
from muster.cli.screen import Column, print_json, status, stderr, stdout, table, write
from muster.cli.target import Target, on_cluster
from muster.cli.words import duration
from muster.core.resources import format_amount
from muster.core.states import AgentStatus

if TYPE_CHECKING:
    from muster.core.views import AgentView


@on_cluster
def agents(
    target: Target,
    group: Annotated[str | None, Option("--group", "-g", help="Only this group's.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the agents: what they have, and how much of it is free."""
    with target.client() as client:
        found = client.agents(group)
    if as_json:
        print_json(found)
    elif found:
        console = stdout()
        write(console, agents_table(console, found, time.time()))
    else:
        stderr().print(Text("no agents; `muster agent --controller HOST:PORT` starts one"))


def agents_table(console: Console, agents: Sequence["AgentView"], now: float) -> Table:
    columns = [
        Column("NAME", shrinks=12),
        Column("STATUS"),
        Column("GROUP", drops=3),
        Column("CPU FREE", right=True),
        Column("MEMORY FREE", right=True, drops=1),
        Column("GPU FREE", right=True),
        Column("KERNELS", right=True, drops=2),
        Column("SEEN", right=True, drops=4),
        Column("HOST", drops=5),
    ]
    return table(console, columns, (_row(agent, now) for agent in agents))


def _row(agent: "AgentView", now: float) -> list[Text | str]:
    free, capacity = agent.free, agent.capacity
    return [
        agent.name,
        _status(agent),
        agent.group,
        _of("cpu", free.cpu_milli, capacity.cpu_milli),
        _of("memory", free.memory_bytes, capacity.memory_bytes),
        _gpus(agent),
        f"{agent.kernels:,}",
        f"{duration(now - agent.seen_at)} ago",
        agent.host,
    ]


def _status(agent: "AgentView") -> Text:
    """Of one that lives and takes nothing new, why. One that is not connected counts as alive until
    it has been silent for long."""
    known = agent.status
    if not agent.connected and known is AgentStatus.ALIVE:
        return status("NOT_CONNECTED")
    shown = status(known)
    return Text.assemble(shown, f", {agent.barred}") if agent.barred else shown


def _of(resource: str, free: int, capacity: int) -> str:
    return f"{format_amount(resource, free)}/{format_amount(resource, capacity)}"


def _gpus(agent: "AgentView") -> str:
    if not agent.capacity.gpu_milli:
        return "-"
    models = Counter(device.model for device in agent.devices if device.model)
    named = " ".join(
        model if len(models) == 1 else f"{number}x{model}" for model, number in models.items()
    )
    return f"{_of('gpu', agent.free.gpu_milli, agent.capacity.gpu_milli)} {named}".rstrip()
