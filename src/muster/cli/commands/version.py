"""``muster version``."""

from typing import Annotated

import typer

from muster.cli.arguments import AsJson
from muster.cli.target import Target, on_cluster
from muster.version import __version__


def print_version(wanted: bool) -> None:
    """``muster --version``."""
    if wanted:
        typer.echo(f"muster {__version__}")
        raise typer.Exit


@on_cluster
def version(
    target: Target,
    controller: Annotated[
        bool, typer.Option("--controller", help="Ask the controller for its version, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the version."""
    found = {"client": __version__}
    if controller:
        with target.client() as client:
            found["controller"] = client.cluster().version
    if as_json:
        import json

        typer.echo(json.dumps(found, indent=2))
    else:
        typer.echo("\n".join(f"{part} {number}" for part, number in found.items()))
