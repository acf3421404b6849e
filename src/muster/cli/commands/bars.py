"""``muster cordon``, ``drain`` and ``uncordon``."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import click

from muster.cli.cluster import Cluster, on_cluster
from muster.cli.completion import complete_agent
from muster.cli.each import each_record
from muster.cli.parameters import Argument, Option
from muster.cli.streams import plain
from muster.cli.words import clock_time, count
from muster.core.errors import NotFound
from muster.core.machine_sentences import held_kernel
from muster.core.states import AgentBar

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.cluster import AgentView, HeldKernelPage

AgentRefs = Annotated[
    list[str],
    Argument(
        metavar="AGENT...",
        help="Names, ids or beginnings of ids.",
        autocompletion=complete_agent,
    ),
]
MOST_NAMED = 20
"""Kernels that a drain names."""
DEADLINE = "1h"
"""The deadline of a drain for which none is given."""
Reason = Annotated[
    str | None,
    Option("--reason", "-r", metavar="TEXT", help="Say why, for those who look.", field="note"),
]


@on_cluster
def cordon(cluster: Cluster, refs: AgentRefs, reason: Reason = None) -> None:
    """Have agents take nothing new; what they run goes on."""
    each_agent(
        cluster,
        refs,
        lambda client, ref: _say(client.bar_agent(ref, AgentBar.CORDONED, note=reason)),
    )


@on_cluster
def drain(
    cluster: Cluster,
    refs: AgentRefs,
    reason: Reason = None,
    deadline: Annotated[
        str | None,
        Option(
            "--deadline",
            metavar="TIME",
            help="Then what still runs is stopped, to run elsewhere: 0 at once, never for never. "
            f"[default: {DEADLINE}]",
        ),
    ] = None,
) -> None:
    """Empty agents: nothing new, and what they run has to leave.

    Agents that are drained already keep the reason and the deadline that are not given anew."""

    def act(client: "Client", ref: str) -> None:
        within = None if deadline == "never" else deadline or DEADLINE
        is_new = deadline is not None
        held = _held(client, ref)  # before it is stopped, which may be at once
        agent = client.bar_agent(
            ref, AgentBar.DRAINING, note=reason, deadline=within, keep_deadline=not is_new
        )
        _say(agent)
        if held is not None and agent.leave_by is not None:
            _say_whom(held)

    each_agent(cluster, refs, act)


@on_cluster
def uncordon(cluster: Cluster, refs: AgentRefs) -> None:
    """Have agents take work again, after cordon or drain."""
    each_agent(cluster, refs, lambda client, ref: _say(client.bar_agent(ref, None)))


def each_agent(cluster: Cluster, refs: list[str], act: "Callable[[Client, str], None]") -> None:
    """Do something with each agent, even if it failed for an earlier agent.

    Raises:
        click.exceptions.Exit: with the worst of the exit codes.
    """
    from muster.cli.kinds import agent

    each_record(cluster, refs, agent.KIND, act)


def _held(client: "Client", ref: str) -> "HeldKernelPage | None":
    """The kernels on an agent; None from a controller that does not tell them."""
    with suppress(NotFound):
        return client.agent_kernels(ref)
    return None


def _say_whom(held: "HeldKernelPage") -> None:
    """Name the work that is to be stopped, and its owners."""
    now = time.time()
    for kernel in held.items[:MOST_NAMED]:
        if kernel.owner is not None:
            click.echo(f"  {plain(held_kernel(kernel, now))}")
    more = len(held.items) - MOST_NAMED
    if more > 0:
        click.echo(f"  and {count(more, 'more kernel')}; `muster agents show` lists all")


def _say(agent: "AgentView") -> None:
    if agent.barred is None:
        click.echo(f"agent {agent.name} takes work again")
        return
    said = f"agent {agent.name} is {agent.barred} and takes nothing new; "
    said += f"it runs {count(agent.kernels, 'kernel')}" if agent.kernels else "it is empty"
    if agent.kernels and agent.leave_by is not None:
        now = time.time()
        at = f"at {clock_time(agent.leave_by, now)}" if agent.leave_by > now + 1 else "now"
        said += f", what is left is stopped {at}"
    click.echo(plain(said))
