"""``muster groups``, and ``muster groups apply``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.cli.arguments import AsJson
from muster.cli.cluster import Ca, Cluster, Home, Token, Url, on_cluster
from muster.cli.parameters import annotated
from muster.cli.screen import Column, plain, print_json, stdout, table, write
from muster.cli.spec_file import SpecFile, read_spec

if TYPE_CHECKING:
    from muster.core.views.cluster import GroupView


@click.group(invoke_without_command=True)
@annotated
def groups(
    ctx: click.Context,
    as_json: AsJson = False,
    url: Url = None,
    token: Token = None,
    home: Home = None,
    ca: Ca = None,
) -> None:
    """List the scaling groups; `groups apply FILE` writes one."""
    cluster: Cluster = ctx.obj.said(url, token, home, ca)
    ctx.obj = cluster
    if ctx.invoked_subcommand is not None:
        return
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
def apply(
    cluster: Cluster,
    file: Annotated[str, SpecFile],
) -> None:
    """Make a scaling group, or write one anew: what the file leaves out is the default."""
    from muster.core.specs import ScalingGroup

    spec = read_spec(file, ScalingGroup)
    with cluster.client() as client:
        click.echo(f"group {client.put_group(spec).name} applied")


def refused_plugins(groups: Sequence["GroupView"]) -> list[Text]:
    """The plug-ins of the groups' policies that are not used, and why."""
    return [
        Text(f"{plain(reason.sentence)}. {plain(reason.remedy)}".strip(), style="yellow")
        for group in groups
        for reason in group.refused
    ]


def groups_table(console: Console, groups: Sequence["GroupView"]) -> Table:
    columns = [
        Column("NAME", shrinks=12),
        Column("AGENTS", right=True),
        Column("WAITING", right=True),
        Column("SEQUENCER"),
        Column("SELECTOR"),
        Column("QUEUE", drops=1),
        Column("PREEMPTION", drops=2),
    ]
    rows = (
        [
            group.name,
            f"{group.agents:,}",
            f"{group.waiting:,}",
            str(group.spec.get("sequencer", "")),
            str(group.spec.get("selector", "")),
            str(group.spec.get("queue", "")),
            _preemption(group.spec.get("preemption")),
        ]
        for group in groups
    )
    return table(console, columns, rows)


def _preemption(spec: dict[str, Any] | None) -> str:
    """The fate of displaced work, and the scope within which work may be displaced; a dash if none
    may."""
    return f"{spec['mode']}, within the {spec['scope']}" if spec else "-"
