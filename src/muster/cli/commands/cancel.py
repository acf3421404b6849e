"""``muster cancel``."""

import sys
from typing import TYPE_CHECKING, Annotated

import click

from muster.cli import kinds
from muster.cli.arguments import AsJson, Subject, parse_ref
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.completion import complete_cancelled, complete_group
from muster.cli.exits import ExitCode
from muster.cli.nearest import suggesting
from muster.cli.parameters import Argument, Option
from muster.cli.streams import plain, print_json
from muster.cli.work_filter import (
    WorkFilter,
    name_option,
    owner_option,
    state_option,
    states_asked,
)

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.work import CancelView

AT_ONCE = 1000
"""Jobs and sessions that one command cancels by their states, names or owners."""


@on_cluster
def cancel(
    cluster: Cluster,
    refs: Annotated[
        list[str] | None,
        Argument(
            metavar="[REF]...",
            help="Jobs, single tasks of them (JOB/3), sessions.",
            autocompletion=complete_cancelled,
        ),
    ] = None,
    state: Annotated[
        str | None, state_option("Cancel all in these states, as waiting,running; or live.")
    ] = None,
    name: Annotated[str | None, name_option("Cancel all of this name, or as 'train*'.")] = None,
    owner: Annotated[
        str | None, owner_option("Cancel all of this user, or of domain/project/user.")
    ] = None,
    group: Annotated[
        str | None,
        Option(
            "--group",
            "-g",
            help="Cancel all in this scaling group.",
            autocompletion=complete_group,
        ),
    ] = None,
    force: Annotated[
        bool, Option("--force", help="Kill at once, without a grace, also what is ending already.")
    ] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Cancel jobs; their tasks are told to stop, then stopped.

    Those of given names and ids, or all that --state, --name, --owner and --group leave."""
    from muster.cli import failures
    from muster.core.errors import MusterError

    is_filtered = any(each is not None for each in (state, name, owner, group))
    if is_filtered == bool(refs):
        raise click.UsageError("give names or ids, or some of --state, --name, --owner and --group")
    if is_filtered:
        chosen = WorkFilter(states_asked(state, "live"), name, owner, group)
        refs = _matching(cluster, chosen)
    subjects = [parse_ref(ref) for ref in refs or ()]
    if force and any(each.index is not None for each in subjects):
        raise click.UsageError("a single task is not cancelled with force: leave out one of them")
    if (len(subjects) > 1 or is_filtered) and subjects and not yes and sys.stdin.isatty():
        single = any(each.index is not None for each in subjects)
        what = "jobs and tasks" if single else "jobs and sessions" if is_filtered else "jobs"
        click.confirm(f"Cancel {len(subjects)} {what}?", abort=True, err=True)
    worst: int = ExitCode.OK
    done: list[CancelView] = []
    with cluster.client() as client:
        for each in subjects:
            try:
                with suggesting(client, each.ref, state="current"):
                    done.append(_cancelled(client, each, force=force))
                if not as_json:
                    click.echo(plain(done[-1].message))
            except MusterError as error:  # the others are cancelled all the same
                worst = max(worst, failures.report(error))
    if as_json:
        print_json(done)
    raise click.exceptions.Exit(worst)


def _matching(cluster: Cluster, chosen: WorkFilter) -> list[str]:
    """The ids of the work that the filter leaves and that can be cancelled; says so if there is
    none, or more than is cancelled at once."""
    with cluster.client() as client:
        found = chosen.look(client, AT_ONCE)
    ids = [each.id for each in found if not kinds.of_work(each).ended(each)]
    if not ids:
        click.echo("no live job or session matches: nothing is cancelled", err=True)
    if len(ids) > AT_ONCE:
        click.echo(f"only the newest {AT_ONCE:,} are cancelled: repeat it for the others", err=True)
    return ids[:AT_ONCE]


def _cancelled(client: "Client", subject: Subject, *, force: bool) -> "CancelView":
    if subject.index is None:
        return client.cancel(subject.ref, force=force)
    return client.cancel_task(subject.ref, subject.index)
