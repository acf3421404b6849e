"""``muster rollout``."""

import itertools
import time
from typing import TYPE_CHECKING, Annotated

import click
from rich.text import Text

from muster.cli.arguments import AsJson
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.command_group import CommandGroup
from muster.cli.commands.deploy import Detach, Timeout
from muster.cli.commands.deployments import Ref
from muster.cli.exits import ExitCode
from muster.cli.follow.deployment import follow, rolled_out
from muster.cli.kinds import deployment as deployment_kind
from muster.cli.nearest import suggesting
from muster.cli.parameters import Option, annotated
from muster.cli.record_commands import verb_command
from muster.cli.screen import Column, show_change, show_listing, stderr, stdout, write
from muster.cli.streams import plain, print_json
from muster.cli.words import moment
from muster.core.verbs.deployments import PAUSE_ROLLOUT, RESUME_ROLLOUT

if TYPE_CHECKING:
    from muster.core.views.deployments import RevisionView

HISTORY = 500
"""Entries of a deployment's history that are looked through for revisions that were given up."""


@click.group(cls=CommandGroup)
def rollout() -> None:
    """Watch, pause and undo the updates of deployments."""


@rollout.command(name="status")
@annotated
@on_cluster
def show_status(
    cluster: Cluster,
    ref: Ref,
    wait: Annotated[
        bool, Option("--wait", "--watch", "-w", help="Show how it goes on, until it is over.")
    ] = False,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Show how far an update is; exit code 1 if it was given up."""
    from muster.cli.described.deployment import deployment_parts

    with cluster.client() as client, suggesting(client, ref, [deployment_kind.KIND]):
        found = client.deployments.show(ref)
        code: int = ExitCode.FAILED if found.is_given_up else ExitCode.OK
        if wait:
            _, code = follow(cluster, found, rolled_out, timeout_s=timeout, quiet=as_json)
            found = client.deployments.show(found.id)
    if as_json:
        print_json(found)
    else:
        write(stdout(), *deployment_parts(found, time.time()))
    raise click.exceptions.Exit(code)


for _verb in (PAUSE_ROLLOUT, RESUME_ROLLOUT):
    rollout.add_command(verb_command(_verb, deployment_kind.KIND, Ref, suggested="live"))


@rollout.command()
@annotated
@on_cluster
def undo(
    cluster: Cluster,
    ref: Ref,
    to: Annotated[
        int | None,
        Option("--to", help="Go to the revision of this number, else to the one before."),
    ] = None,
    detach: Detach = False,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Go back to a former revision, and wait until it serves.

    Where that revision serves already, nothing is rolled out."""
    from muster.cli.described.deployment import said_undo

    with cluster.client() as client, suggesting(client, ref, [deployment_kind.KIND], state="live"):
        before = client.deployments.show(ref)
        found = client.undo_rollout(before.id, to)
    said = said_undo(before, found, to)
    if detach:
        show_change(found, said, as_json=as_json)
        return
    if not as_json:
        stderr().print(Text(plain(said)), soft_wrap=True)
    view, code = follow(cluster, found, rolled_out, timeout_s=timeout, quiet=as_json)
    if as_json:
        print_json(view)
    raise click.exceptions.Exit(code)


@rollout.command()
@annotated
@on_cluster
def history(cluster: Cluster, ref: Ref, as_json: AsJson = False) -> None:
    """List the revisions, oldest first, with what each changed.

    Of variables and files that are likely secret or long, the names alone are told; --json tells
    all."""
    from muster.cli.described.revision import changes, command_of, given_up, notes

    with cluster.client() as client, suggesting(client, ref, [deployment_kind.KIND]):
        found = client.deployments.show(ref)
        told = () if as_json else client.history(found.id, limit=HISTORY).items
    columns = [
        Column("REVISION", right=True),
        Column("MADE", drops=2),
        Column("BY", drops=1),
        Column("NOTE"),
        Column("CHANGED", flexible=True, wraps=True),
    ]
    failures = given_up(found, told)
    before = {later.number: each for each, later in itertools.pairwise(found.revisions)}

    def row(each: "RevisionView") -> list[Text | str]:
        former = before.get(each.number)
        changed = (
            f"command: {command_of(each.template)}"
            if former is None
            else changes(former.template, each.template)
        )
        return [
            str(each.number),
            moment(each.created_at),
            plain(each.by),
            notes(each, found, failures),
            plain(changed),
        ]

    show_listing(found.revisions, columns, row, as_json=as_json, limit=len(found.revisions) or 1)
