"""``muster open``."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import click
from rich.text import Text

from muster.cli.arguments import AsJson
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.commands.deployments import Ref
from muster.cli.exits import ExitCode
from muster.cli.follow.deployment import follow, said, serves
from muster.cli.kinds import deployment as deployment_kind
from muster.cli.nearest import suggesting
from muster.cli.parameters import Option, annotated
from muster.cli.proxies import answering_proxy, url_at
from muster.cli.screen import stderr
from muster.cli.streams import plain, print_json
from muster.core.errors import Conflict
from muster.core.states.deployment import EndpointLifecycle

if TYPE_CHECKING:
    from muster.core.views.deployments import DeploymentDetail

WAIT_S = 300.0


@click.command()
@annotated
@on_cluster
def open(
    cluster: Cluster,
    ref: Ref,
    wait: Annotated[
        bool, Option("--wait", "-w", help="First wait until a replica is healthy.")
    ] = False,
    timeout: Annotated[
        float, Option("--timeout", min=0, help="Wait so many seconds at most.")
    ] = WAIT_S,
    no_browser: Annotated[bool, Option("--no-browser", help="Print the URL alone.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the URL of a deployment, and show it in the browser.

    The browser is for public deployments, and for people at a terminal. Others are reached with a
    token, which no URL holds."""
    with cluster.client() as client:
        with suggesting(client, ref, [deployment_kind.KIND], state="live"):
            found = client.deployments.show(ref)
        _check_stays(found)
        if wait:
            view, code = follow(cluster, found, serves, timeout_s=timeout, quiet=as_json)
            if code != ExitCode.OK:
                raise click.exceptions.Exit(code)
            found = client.deployments.show(view.id)
        url = url_at(answering_proxy(client), found.name)
    public = is_public(found)
    if as_json:
        print_json({"name": found.name, "url": url, "public": public, "healthy": found.healthy})
        return
    click.echo(url)
    for line in _notes(found, public=public):
        stderr().print(Text(plain(line)), soft_wrap=True)
    answers = found.healthy > 0 or found.replicas == 0  # the proxy waits for the first replica
    if public and answers and not no_browser and sys.stdout.isatty() and _has_display():
        import webbrowser

        webbrowser.open(url)


def is_public(found: "DeploymentDetail") -> bool:
    """Whether anybody may send it requests."""
    access = found.spec.get("access") or {}
    return bool(access.get("public"))


def _check_stays(found: "DeploymentDetail") -> None:
    """
    Raises:
        Conflict: the deployment is over.
    """
    if found.status in (EndpointLifecycle.DESTROYING, EndpointLifecycle.DESTROYED):
        raise Conflict(f"{said(found)}; `muster deploy FILE` makes it anew")


def _notes(found: "DeploymentDetail", *, public: bool) -> list[str]:
    """Sentences for people who are about to use the URL."""
    notes = []
    if found.host is not None:
        notes.append(f"requests with the host {found.host} reach it too, at the same port")
    if not public:
        notes.append(
            "it asks for a token: send `Authorization: Bearer TOKEN`; `muster tokens create NAME` "
            "makes one"
        )
    if found.healthy == 0 and found.replicas == 0:
        notes.append("it has no replica now; where the number follows load, a request makes one")
    elif found.healthy == 0:
        notes.append(
            f"no replica is healthy: `muster why {found.name}` says why, and --wait waits for one"
        )
    return notes


def _has_display() -> bool:
    """Whether a browser would have a window; one of text would take the terminal."""
    named = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform == "darwin" or any(os.environ.get(name) for name in named)
