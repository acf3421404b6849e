"""``muster reprioritise``."""

from typing import Annotated

import click

from muster.cli.arguments import AsJson, Ref, parse_ref
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.nearest import suggesting
from muster.cli.parameters import Argument
from muster.cli.streams import plain, print_json


@on_cluster
def reprioritise(
    cluster: Cluster,
    ref: Ref,
    priority: Annotated[
        int, Argument(metavar="PRIORITY", help="Set the priority, 0 to 100; higher goes first.")
    ],
    as_json: AsJson = False,
) -> None:
    """Give a job that waits or runs another priority."""
    if parse_ref(ref).index is not None:
        raise click.BadParameter(f"{ref!r} is one task: it has the priority of its job")
    with cluster.client() as client, suggesting(client, ref, state="live"):
        changed = client.reprioritise(ref, priority)
    if as_json:
        print_json(changed)
    else:
        click.echo(plain(changed.message))
