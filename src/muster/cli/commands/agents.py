"""``muster agents``."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.cli.arguments import AsJson, InGroup
from muster.cli.cluster import Cluster, Home, Token, Url, on_cluster
from muster.cli.command_group import CommandGroup
from muster.cli.commands.bars import AgentRefs, each_agent
from muster.cli.commands.healing import check, heal, isolate, return_
from muster.cli.commands.invites import invite, invites, uninvite
from muster.cli.completion import complete_agent
from muster.cli.kinds.agent import KIND
from muster.cli.parameters import Argument, Option, annotated, command_of
from muster.cli.record_commands import show_command
from muster.cli.screen import Column, status, stderr, stdout, table, write
from muster.cli.streams import plain, print_json
from muster.cli.words import clock_time, count, duration
from muster.core.errors import MusterError
from muster.core.resources import format_amount
from muster.core.states import AgentBar, AgentStatus

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.cluster import AgentView


REMOVED_WITHIN_S = 300.0
"""How long ``agents remove --force`` waits until the processes of an agent are gone."""
LOOK_S = 0.5
AgentRef = Annotated[
    str,
    Argument(
        metavar="AGENT", help="Name, id or the beginning of an id.", autocompletion=complete_agent
    ),
]


@click.group(cls=CommandGroup, invoke_without_command=True)
@annotated
def agents(
    ctx: click.Context,
    group: InGroup = None,
    as_json: AsJson = False,
    url: Url = None,
    token: Token = None,
    home: Home = None,
) -> None:
    """List the agents: what they have, and how much of it is free."""
    cluster: Cluster = ctx.obj.said(url, token, home)
    ctx.obj = cluster
    if ctx.invoked_subcommand is not None:
        return
    with cluster.client() as client:
        found = client.agents(group)
    if as_json:
        print_json(found)
    elif found:
        console = stdout()
        write(console, agents_table(console, found, time.time()))
        if ill := sum(bool(each.ill) for each in found):
            are = "is" if ill == 1 else "are"
            said = f"{ill:,} of {count(len(found), 'agent')} {are} ill"
            stderr().print(Text(f"{said}; `muster incidents` tells why"))
    else:
        stderr().print(Text("no agents; `muster agents invite NAME` says how to add one"))


for _command in (invite, invites, uninvite, check, heal, isolate):
    agents.add_command(command_of(_command))
agents.add_command(command_of(return_), "return")


agents.add_command(
    show_command(
        KIND,
        lambda client: client.agents,
        AgentRef,
        "Show an agent, and the incidents that it had.",
    )
)


@agents.command()
@annotated
@on_cluster
def remove(
    cluster: Cluster,
    refs: AgentRefs,
    force: Annotated[
        bool, Option("--force", help="Stop what it runs, wait until that is gone, then remove it.")
    ] = False,
    lost: Annotated[
        bool,
        Option(
            "--lost",
            help="You vouch that their machines are gone or were rebooted: what they may still run "
            "counts as lost, and runs elsewhere. If it does still run, it runs twice.",
        ),
    ] = False,
) -> None:
    """Forget agents that are gone for good, or were drained."""
    if force and lost:
        raise click.UsageError("--force waits for what runs, --lost is for what is gone: give one")

    def remove_one(client: "Client", ref: str) -> None:
        if force:
            _emptied(client, ref)
        client.remove_agent(ref, lost=lost)
        click.echo(f"agent {plain(ref)} is removed; one whose process still runs joins anew")

    each_agent(cluster, refs, remove_one)


def _emptied(client: "Client", ref: str) -> None:
    """Have an agent's kernels run elsewhere, and wait until their processes are proven gone.
    Without that proof another attempt might run beside a process that is still alive.

    Raises:
        MusterError: there is no such agent, or it is not empty in time.
    """
    agent = client.bar_agent(ref, AgentBar.DRAINING, note="to be removed", deadline=0)
    until_s = time.monotonic() + REMOVED_WITHIN_S
    while agent.kernels + agent.prefilled:
        if time.monotonic() > until_s:
            raise MusterError(
                f"agent {agent.name} may still run {count(agent.kernels, 'kernel')}: it takes "
                f"nothing new, remove it when they are gone or its lease has ended"
            )
        time.sleep(LOOK_S)
        left = [each for each in client.agents() if each.id == agent.id]
        if not left:
            return
        agent = left[0]


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
        _status(agent, now),
        agent.group,
        _of("cpu", free.cpu_milli, capacity.cpu_milli),
        _of("memory", free.memory_bytes, capacity.memory_bytes),
        _gpus(agent),
        f"{agent.kernels:,}",
        "-" if agent.seen_at is None else f"{duration(now - agent.seen_at)} ago",
        agent.host,
    ]


def _status(agent: "AgentView", now: float) -> Text:
    """The reason why a live agent takes no new work. An agent without a connection counts as alive
    until it has been silent for long."""
    known = agent.status
    if not agent.connected and known is AgentStatus.ALIVE:
        return status("NOT_CONNECTED")
    shown = status(known)
    if agent.barred:
        shown = Text.assemble(shown, f", {agent.barred}")
        if agent.leave_by is not None and agent.leave_by > now and agent.kernels:
            shown.append(f" until {clock_time(agent.leave_by, now)}")
        if agent.bar_note:
            shown.append(f": {plain(agent.bar_note)}")
    if agent.disk_full:
        shown = Text.assemble(shown, ", disk full")
    for other in (agent.ill, agent.withheld):
        if other:
            shown = Text.assemble(shown, f", {plain(other)}")
    return shown


def _of(resource: str, free: int, capacity: int) -> str:
    return f"{format_amount(resource, free)}/{format_amount(resource, capacity)}"


def _gpus(agent: "AgentView") -> str:
    if not agent.capacity.gpu_milli:
        return "-"
    models = Counter(device.model for device in agent.devices if device.model)
    named = " ".join(
        model if len(models) == 1 else f"{number}x{model}" for model, number in models.items()
    )
    free = 0 if agent.ill else agent.free.gpu_milli  # nobody gets those of an ill machine
    return f"{_of('gpu', free, agent.capacity.gpu_milli)} {named}".rstrip()
