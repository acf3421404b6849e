"""``muster agents check``, ``heal``, ``isolate`` and ``return``: decisions about the health of
machines."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import click

from muster.cli.arguments import AsJson
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.commands.bars import AgentRefs
from muster.cli.each import each_changed
from muster.cli.kinds import agent as agents
from muster.cli.parameters import Option
from muster.cli.words import count

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.cluster import AgentView
    from muster.core.views.health import IncidentView

Note = Annotated[
    str,
    Option(
        "--note",
        metavar="TEXT",
        help="Say why, for those who look; history keeps it.",
        show_default=False,
    ),
]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]


@on_cluster
def check(
    cluster: Cluster, refs: AgentRefs, note: Note = "", yes: Yes = False, as_json: AsJson = False
) -> None:
    """Have machines checked; what they run has to leave first."""
    _ask(cluster, refs, "Check", yes=yes)
    _decide(cluster, refs, lambda client, ref: client.check_agent(ref, note=note), as_json=as_json)


@on_cluster
def heal(
    cluster: Cluster, refs: AgentRefs, note: Note = "", yes: Yes = False, as_json: AsJson = False
) -> None:
    """Have machines rebooted and checked."""
    _ask(cluster, refs, "Heal", yes=yes)
    _decide(cluster, refs, lambda client, ref: client.heal_agent(ref, note=note), as_json=as_json)


@on_cluster
def isolate(
    cluster: Cluster, refs: AgentRefs, note: Note = "", yes: Yes = False, as_json: AsJson = False
) -> None:
    """Take machines out of work until somebody decides."""
    _ask(cluster, refs, "Isolate", yes=yes)
    _decide(
        cluster, refs, lambda client, ref: client.isolate_agent(ref, note=note), as_json=as_json
    )


@on_cluster
def return_(cluster: Cluster, refs: AgentRefs, note: Note = "", as_json: AsJson = False) -> None:
    """Have ill machines take work again, whatever checks say."""
    _decide(cluster, refs, lambda client, ref: client.return_agent(ref, note=note), as_json=as_json)


def _decide(
    cluster: Cluster,
    refs: Sequence[str],
    decide: "Callable[[Client, str], IncidentView]",
    *,
    as_json: bool,
) -> None:
    each_changed(cluster, refs, agents.KIND, decide, _told, as_json=as_json)


def _ask(cluster: Cluster, refs: Sequence[str], to: str, *, yes: bool) -> None:
    """Have a person confirm what would displace work.

    Raises:
        click.Abort: they do not.
    """
    if yes or not sys.stdin.isatty():
        return
    with cluster.client() as client:
        busy = _busy(client, refs)
    if busy:
        kernels = count(sum(each.kernels for each in busy), "kernel")
        where = busy[0].name if len(busy) == 1 else count(len(busy), "agent")
        click.confirm(
            f"{kernels} on {where} would have to leave. {to} {count(len(refs), 'machine')}?",
            abort=True,
            err=True,
        )


def _busy(client: "Client", refs: Sequence[str]) -> "list[AgentView]":
    """The machines of these that work would have to leave; what is unknown is told later."""
    wanted = {ref.lower() for ref in refs}
    return [
        each
        for each in client.agents()
        if each.kernels and not each.ill and wanted & {each.name.lower(), each.id.lower()}
    ]


def _told(incident: "IncidentView") -> str:
    from muster.core.states.health import HEALTH_TABLE, HealthStatus

    said = f"agent {incident.agent} {HEALTH_TABLE.words[incident.status]}"
    if incident.status is HealthStatus.ISOLATED:
        return f"{said}; `muster agents return {incident.agent}` has it take work again"
    if incident.finished_at is not None:
        return said
    return f"{said}; `muster why {incident.agent}` tells more"
