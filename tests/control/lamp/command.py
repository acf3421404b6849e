"""``muster lamps``."""

from typing import TYPE_CHECKING, cast

import click

from muster.cli.cluster import Cluster, on_cluster
from muster.cli.parameters import annotated

if TYPE_CHECKING:
    from tests.control.lamp.joined_client import LampClient


@click.command()
@annotated
@on_cluster
def lamps(cluster: Cluster) -> None:
    """List lamps."""
    with cluster.client() as client:
        for lamp in cast("LampClient", client).lamps():
            click.echo(f"{lamp.name} {lamp.status}")
