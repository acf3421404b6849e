"""``muster version``."""

import click

from muster.cli.arguments import AsJson
from muster.cli.cluster import Cluster, on_cluster
from muster.core.errors import MusterError
from muster.version import __version__

TIMEOUT_S = 1.0
"""How long the controller may take to tell its version."""


@on_cluster
def version(cluster: Cluster, as_json: AsJson = False) -> None:
    """Show the version, and the controller's if one answers."""
    controller = _controller(cluster)
    if as_json:
        import json

        click.echo(json.dumps({"client": __version__, "controller": controller}, indent=2))
        return
    click.echo(f"client {__version__}")
    if controller is not None:
        click.echo(f"controller {controller['version']} at {controller['url']}")


def _controller(cluster: Cluster) -> dict[str, str] | None:
    """The controller's version and URL; None where no cluster is known or none answers."""
    try:
        with cluster.client(TIMEOUT_S) as client:
            return {"version": client.health().version, "url": client.url}
    except MusterError:
        return None
