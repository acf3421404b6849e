"""``muster deploy``."""

import time
from typing import TYPE_CHECKING, Annotated

import click
from rich.text import Text

from muster.cli.arguments import AsJson
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.exits import ExitCode
from muster.cli.parameters import Option, annotated
from muster.cli.screen import plain, print_json, show_change, stderr
from muster.cli.spec_file import SpecFile, read_spec

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.deployments import DeploymentView

LOOK_S = 0.5


@click.command()
@annotated
@on_cluster
def deploy(
    cluster: Cluster,
    file: Annotated[str, SpecFile],
    detach: Annotated[
        bool, Option("--detach", "-d", help="Do not wait until all replicas are healthy.")
    ] = False,
    timeout: Annotated[
        float | None, Option("--timeout", help="Longest wait, in seconds; it goes on anyway.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a deployment, or change it, and wait until it is healthy.

    The file names it. Exit code 1 if its revision was given up."""
    from muster.core.specs import DeploymentSpec

    spec = read_spec(file, DeploymentSpec)
    with cluster.client() as client:
        before = client.deploy(spec)
        if detach:
            show_change(before, _said(before), as_json=as_json)
            return
        found = follow(client, before.id, timeout, quiet=as_json)
    if as_json:
        print_json(found)
    if not is_settled(found):
        raise click.exceptions.Exit(ExitCode.FAILED)


def follow(client: "Client", id_: str, timeout_s: float | None, *, quiet: bool) -> "DeploymentView":
    """Tell of a deployment's changes until all of its replicas are healthy, a revision is given up,
    or the time is over."""
    until = None if timeout_s is None else time.monotonic() + timeout_s
    told = ""
    while True:
        found = client.deployments.show(id_)
        said = _said(found)
        if said != told and not quiet:
            stderr().print(Text(plain(said)), soft_wrap=True)
            told = said
        stuck = found.reason is not None and found.reason.kind == "request"
        if is_settled(found) or is_given_up(found) or stuck or found.finished_at is not None:
            return found
        if until is not None and time.monotonic() >= until:
            return found
        time.sleep(LOOK_S)


def is_settled(found: "DeploymentView") -> bool:
    """Whether the wished revision serves with all of its replicas."""
    done = found.rollout is None and found.revision == found.stable
    return done and found.healthy >= found.replicas


def is_given_up(found: "DeploymentView") -> bool:
    """Whether the wished revision is not rolled out any further, and another one serves."""
    return found.rollout is None and found.revision != found.stable


def _said(found: "DeploymentView") -> str:
    from muster.cli.described.deployment import said_replicas, said_rollout

    update = said_rollout(found, time.time())
    said = f"deployment {found.name}: {said_replicas(found)}"
    said += f"; {update}" if update else ""
    return f"{said}; {found.reason.sentence}" if found.reason is not None else said
