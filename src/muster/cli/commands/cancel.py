"""``muster cancel``."""

import sys
from typing import TYPE_CHECKING, Annotated

import click

from muster.cli.arguments import AsJson, parse_ref
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.completion import complete_cancelled
from muster.cli.exits import ExitCode
from muster.cli.nearest import suggesting
from muster.cli.parameters import Argument, Option
from muster.cli.screen import plain, print_json

if TYPE_CHECKING:
    from muster.core.views.work import CancelView


@on_cluster
def cancel(
    cluster: Cluster,
    refs: Annotated[
        list[str],
        Argument(metavar="REF...", help="Jobs and sessions.", autocompletion=complete_cancelled),
    ],
    force: Annotated[
        bool, Option("--force", help="Kill at once, without a grace; also what is ending already.")
    ] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Cancel jobs; their tasks are told to stop, then stopped."""
    from muster.cli import failures
    from muster.core.errors import MusterError

    for ref in refs:
        if parse_ref(ref).index is not None:
            raise click.BadParameter(f"{ref!r} is one task: a job is cancelled whole")
    if len(refs) > 1 and not yes and sys.stdin.isatty():
        click.confirm(f"Cancel {len(refs)} jobs?", abort=True, err=True)
    worst: int = ExitCode.OK
    done: list[CancelView] = []
    with cluster.client() as client:
        for ref in refs:
            try:
                with suggesting(client, ref):
                    done.append(client.cancel(ref, force=force))
                if not as_json:
                    click.echo(plain(done[-1].message))
            except MusterError as error:  # the others are cancelled all the same
                worst = max(worst, failures.report(error))
    if as_json:
        print_json(done)
    raise click.exceptions.Exit(worst)
