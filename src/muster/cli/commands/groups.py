"""``muster groups``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.cli.arguments import AsJson
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.command_group import ListedGroup
from muster.cli.completion import complete_group
from muster.cli.described.group import ceilings, group_parts, has_ceilings, preemption
from muster.cli.nearest import named_group
from muster.cli.parameters import Argument, annotated
from muster.cli.screen import Column, show_change, stderr, stdout, table, write
from muster.cli.spec_file import SpecFile, read_spec
from muster.cli.streams import plain, print_json
from muster.cli.words import sentence_of

if TYPE_CHECKING:
    from muster.core.views.cluster import GroupView


GroupName = Annotated[str, Argument(metavar="GROUP", autocompletion=complete_group)]


@click.group(cls=ListedGroup)
def groups() -> None:
    """List the scaling groups, show, write and remove one."""


@groups.command(name="list")
@annotated
@on_cluster
def list_groups(cluster: Cluster, as_json: AsJson = False) -> None:
    """List the scaling groups, and how much of their ceilings is used."""
    with cluster.client() as client:
        found = client.groups()
    if as_json:
        print_json(found)
    else:
        console = stdout()
        write(console, groups_table(console, found), *refused_plugins(found))


@groups.command()
@annotated
@on_cluster
def show(cluster: Cluster, name: GroupName, as_json: AsJson = False) -> None:
    """Show a group, its policy, and the use of its ceilings."""
    with cluster.client() as client:
        group = named_group(client, name)
    if as_json:
        print_json(group)
    else:
        write(stdout(), *group_parts(group), *refused_plugins([group]))


@groups.command()
@annotated
@on_cluster
def apply(
    cluster: Cluster,
    file: Annotated[str, SpecFile],
    as_json: AsJson = False,
) -> None:
    """Make a scaling group, or write one anew. What the file leaves out is the default."""
    from muster.core.specs import ScalingGroup

    spec = read_spec(file, ScalingGroup)
    with cluster.client() as client:
        applied = client.put_group(spec)
    show_change(applied, f"group {applied.name} applied", as_json=as_json)
    if not as_json and (refused := refused_plugins([applied])):
        write(stderr(), *refused)


@groups.command()
@annotated
@on_cluster
def remove(cluster: Cluster, name: GroupName) -> None:
    """Remove a group that has neither agents nor pools nor work."""
    with cluster.client() as client:
        client.remove_group(name)
    click.echo(f"group {name} removed")


def refused_plugins(groups: Sequence["GroupView"]) -> list[Text]:
    """The plug-ins and checks of the groups' policies that are not used, and why."""
    return [
        Text(f"{plain(sentence_of(reason))}. {plain(reason.remedy)}".strip(), style="yellow")
        for group in groups
        for reason in group.refused
    ]


def groups_table(console: Console, groups: Sequence["GroupView"]) -> Table:
    """The groups; what their pools have is told where a group has some."""
    pooled = any(map(has_ceilings, groups))
    ceilings_of = [
        Column("MACHINES", right=True, drops=3),
        Column("GPUS", right=True, drops=4),
        Column("PRICE/H", right=True, drops=5),
    ]
    columns = [
        Column("NAME", shrinks=12),
        Column("AGENTS", right=True),
        Column("WAITING", right=True),
        *(ceilings_of if pooled else ()),
        Column("SEQUENCER", drops=6 if pooled else 0),
        Column("SELECTOR", drops=7 if pooled else 0),
        Column("QUEUE", drops=8 if pooled else 1),
        Column("PREEMPTION", drops=9 if pooled else 2),
    ]
    rows = (
        [
            group.name,
            f"{group.agents:,}",
            f"{group.waiting:,}",
            *(ceilings(group) if pooled else ()),
            str(group.spec.get("sequencer", "")),
            str(group.spec.get("selector", "")),
            str(group.spec.get("queue", "")),
            preemption(group.spec.get("preemption")),
        ]
        for group in groups
    )
    return table(console, columns, rows)
