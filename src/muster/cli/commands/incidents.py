"""``muster incidents``."""

import time
from typing import TYPE_CHECKING, Annotated

import click
from rich.text import Text

from muster.cli.arguments import AsJson, InGroup
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.command_group import ListedGroup
from muster.cli.completion import complete_agent, complete_incident
from muster.cli.described.incident import about, lasted, why
from muster.cli.kinds import agent as agents
from muster.cli.kinds import incident as kind
from muster.cli.nearest import check_filters, suggesting
from muster.cli.parameters import Argument, Option, annotated
from muster.cli.record_commands import show_command
from muster.cli.screen import Column, status, stderr, stdout, table, tell_left_out, write
from muster.cli.streams import plain, print_json
from muster.cli.words import shorten

if TYPE_CHECKING:
    from muster.core.views.health import IncidentView

IncidentRef = Annotated[
    str,
    Argument(
        metavar="INCIDENT", help="Id or the beginning of one.", autocompletion=complete_incident
    ),
]


@click.group(cls=ListedGroup)
def incidents() -> None:
    """List the incidents of machines that are ill, or were."""


@incidents.command(name="list")
@annotated
@on_cluster
def list_incidents(
    cluster: Cluster,
    agent: Annotated[
        str | None,
        Option("--agent", help="Show only this machine's.", autocompletion=complete_agent),
    ] = None,
    group: InGroup = None,
    ended: Annotated[
        bool, Option("--all", "-a", help="Include those of machines that are well again.")
    ] = False,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Show so many of the newest.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the incidents of machines that are ill."""
    with cluster.client() as client:
        state = "all" if ended else "live"
        found = client.incidents(state, agent=agent, group=group, limit=limit + 1)
        if not found:
            check_filters(client, group=group)
            if agent is not None:
                with suggesting(client, agent, [agents.KIND]):
                    client.agents.show(agent)
    shown = found[:limit]
    if as_json:
        print_json(shown)
    elif shown:
        console = stdout()
        now, short = time.time(), shorten(each.id for each in shown)
        columns = [
            Column("ID"),
            Column("AGENT", shrinks=12),
            Column("STATUS"),
            Column("ABOUT", drops=3),
            Column("FOR", right=True),
            Column("ROUNDS", right=True, drops=2),
            Column("WORK", drops=1),
            Column("WHY", flexible=True, wraps=True),
        ]
        rows = (_row(each, short[each.id], now) for each in shown)
        write(console, table(console, columns, rows))
    else:
        stderr().print(Text("no incidents; `muster agents check AGENT` has a machine checked"))
    tell_left_out(found, limit)


incidents.add_command(
    show_command(
        kind.KIND,
        lambda client: client.incidents,
        IncidentRef,
        "Show an incident with its checks, and what was tried.",
    )
)


def _row(incident: "IncidentView", short: str, now: float) -> list[Text | str]:
    return [
        f"{incident.id.partition('-')[0]}-{short}",
        incident.agent,
        status(incident.status),
        about(incident),
        lasted(incident, now),
        str(incident.rounds),
        "out" if incident.is_out and incident.finished_at is None else "",
        plain(why(incident)),
    ]
