"""``muster cordon``, ``drain`` and ``uncordon``."""

from typing import Annotated

import click

from muster.cli.parameters import Argument
from muster.cli.target import Target, on_cluster
from muster.cli.words import count
from muster.core.states import AgentBar

AgentRef = Annotated[
    str, Argument(metavar="AGENT", help="Its name, its id or the beginning of its id.")
]


@on_cluster
def cordon(target: Target, ref: AgentRef) -> None:
    """Have an agent take nothing new; what it runs goes on."""
    _bar(target, ref, AgentBar.CORDONED)


@on_cluster
def drain(target: Target, ref: AgentRef) -> None:
    """Have an agent take nothing new: it is to be emptied."""
    _bar(target, ref, AgentBar.DRAINING)


@on_cluster
def uncordon(target: Target, ref: AgentRef) -> None:
    """Have an agent take work again."""
    _bar(target, ref, None)


def _bar(target: Target, ref: str, bar: AgentBar | None) -> None:
    with target.client() as client:
        agent = client.bar_agent(ref, bar)
    if agent.barred is None:
        click.echo(f"agent {agent.name} takes work again")
    else:
        runs = f"it runs {count(agent.kernels, 'kernel')}" if agent.kernels else "it is empty"
        click.echo(f"agent {agent.name} is {agent.barred} and takes nothing new; {runs}")
