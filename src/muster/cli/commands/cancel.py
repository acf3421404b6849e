"""``muster cancel``."""

import sys
from typing import Annotated

import click

from muster.cli.arguments import parse_ref
from muster.cli.completion import complete_ref
from muster.cli.exits import ExitCode
from muster.cli.nearest import suggesting
from muster.cli.parameters import Argument, Option
from muster.cli.target import Target, on_cluster


@on_cluster
def cancel(
    target: Target,
    refs: Annotated[
        list[str],
        Argument(metavar="REF...", help="Jobs and sessions.", autocompletion=complete_ref),
    ],
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
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
    with target.client() as client:
        for ref in refs:
            try:
                with suggesting(client, ref):
                    click.echo(client.cancel(ref).message)
            except MusterError as error:  # the others are cancelled nevertheless
                worst = max(worst, failures.report(error))
    raise click.exceptions.Exit(worst)
