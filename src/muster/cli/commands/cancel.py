"""``muster cancel``."""

import sys
from typing import TYPE_CHECKING, Annotated

import click

from muster.cli.arguments import AsJson, Subject, parse_ref
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.completion import complete_cancelled
from muster.cli.exits import ExitCode
from muster.cli.nearest import suggesting
from muster.cli.parameters import Argument, Option
from muster.cli.screen import plain, print_json

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.work import CancelView


@on_cluster
def cancel(
    cluster: Cluster,
    refs: Annotated[
        list[str],
        Argument(
            metavar="REF...",
            help="Jobs, single tasks of them (JOB/3), sessions.",
            autocompletion=complete_cancelled,
        ),
    ],
    force: Annotated[
        bool, Option("--force", help="Kill at once, without a grace, also what is ending already.")
    ] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Cancel jobs; their tasks are told to stop, then stopped."""
    from muster.cli import failures
    from muster.core.errors import MusterError

    subjects = [parse_ref(ref) for ref in refs]
    if force and any(each.index is not None for each in subjects):
        raise click.UsageError("a single task is not cancelled with force: leave out one of them")
    if len(refs) > 1 and not yes and sys.stdin.isatty():
        single = any(each.index is not None for each in subjects)
        what = "jobs and tasks" if single else "jobs"
        click.confirm(f"Cancel {len(refs)} {what}?", abort=True, err=True)
    worst: int = ExitCode.OK
    done: list[CancelView] = []
    with cluster.client() as client:
        for each in subjects:
            try:
                with suggesting(client, each.ref):
                    done.append(_cancelled(client, each, force=force))
                if not as_json:
                    click.echo(plain(done[-1].message))
            except MusterError as error:  # the others are cancelled all the same
                worst = max(worst, failures.report(error))
    if as_json:
        print_json(done)
    raise click.exceptions.Exit(worst)


def _cancelled(client: "Client", subject: Subject, *, force: bool) -> "CancelView":
    if subject.index is None:
        return client.cancel(subject.ref, force=force)
    return client.cancel_task(subject.ref, subject.index)
