"""``muster deployments``, ``routes`` and ``scale``."""

import time
from typing import TYPE_CHECKING, Annotated

import click
from rich.text import Text

from muster.cli.arguments import AsJson, InGroup
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.completion import complete_deployment
from muster.cli.described.deployment import said_unready
from muster.cli.follow.deployment import follow, scaled
from muster.cli.kinds import deployment as deployment_kind
from muster.cli.nearest import check_filters, suggesting
from muster.cli.parameters import Argument, Option, annotated
from muster.cli.screen import Column, show_change, show_listing, status, stderr
from muster.cli.streams import plain, print_json
from muster.cli.words import count, duration, sentence_of
from muster.core.states.deployment import RouteStatus

if TYPE_CHECKING:
    from muster.core.views.deployments import DeploymentView, RouteView

Ref = Annotated[
    str,
    Argument(
        metavar="DEPLOYMENT",
        help="Name, id, or the beginning of one.",
        autocompletion=complete_deployment,
    ),
]


@click.command()
@annotated
@on_cluster
def deployments(
    cluster: Cluster,
    group: InGroup = None,
    ended: Annotated[bool, Option("--all", "-a", help="Include those that are gone.")] = False,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Show so many of the newest.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List deployments, newest first."""
    with cluster.client() as client:
        found = client.deployments("all" if ended else "live", group=group, limit=limit + 1)
        if not found and not as_json:
            check_filters(client, group=group)
    if not found and not as_json:
        gone = "" if ended else ", and `-a` lists those that are gone"
        stderr().print(Text(f"no deployments; `muster deploy FILE` makes one{gone}"))
        return
    now = time.time()
    columns = [
        Column("NAME", shrinks=12),
        Column("STATUS"),
        Column("FOR", right=True, drops=2),
        Column("HEALTHY", right=True),
        Column("REVISION", right=True, drops=1),
        Column("GROUP", drops=4),
        Column("OWNER", drops=3),
        Column("WHY", flexible=True, wraps=True),
    ]
    show_listing(found, columns, lambda each: _row(each, now), as_json=as_json, limit=limit)


def _row(found: "DeploymentView", now: float) -> list[Text | str]:
    sentence = [] if found.reason is None else [sentence_of(found.reason)]
    revision = str(found.stable)
    if found.revision != found.stable:
        revision += f" → {found.revision}" if found.rollout is not None else ""
    return [
        plain(found.name),
        status(found.standing),
        duration(now - found.status_changed_at),
        f"{found.healthy}/{found.replicas}",
        revision,
        plain(found.group),
        plain(str(found.owner)),
        plain("; ".join([*said_unready(found), *sentence])),
    ]


@click.command()
@annotated
@on_cluster
def routes(
    cluster: Cluster,
    deployment: Annotated[
        str | None,
        Argument(
            metavar="[DEPLOYMENT]",
            help="Deployment whose replicas are shown; all without it.",
            autocompletion=complete_deployment,
        ),
    ] = None,
    ended: Annotated[bool, Option("--all", "-a", help="Include those that ended.")] = False,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Show so many of the newest.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List routes, the replicas of deployments, newest first."""
    with cluster.client() as client, suggesting(client, deployment or "", [deployment_kind.KIND]):
        state = "all" if ended else "live"
        found = client.routes(state, deployment=deployment, limit=limit + 1)
    if not found and not as_json:
        more = "" if ended else "; `-a` lists those that ended"
        stderr().print(Text(f"no routes{more}"))
        return
    now = time.time()
    columns = [
        Column("ID"),
        Column("STATUS"),
        Column("FOR", right=True, drops=2),
        Column("REVISION", right=True, drops=1),
        Column("ADDRESS", drops=3),
        Column("SESSION", drops=4),
        Column("WHY", flexible=True, wraps=True),
    ]
    show_listing(found, columns, lambda each: _route(each, now), as_json=as_json, limit=limit)


def _route(route: "RouteView", now: float) -> list[Text | str]:
    return [
        route.id,
        status(route.status),
        duration(now - route.status_changed_at),
        str(route.revision),
        plain(route.address or "-"),
        route.session or "-",
        plain(_why(route)),
    ]


def _why(route: "RouteView") -> str:
    """Why a route is not healthy. The reason of one that is starting is only in the controller."""
    if route.reason is not None:
        return sentence_of(route.reason)
    if route.status != RouteStatus.DEGRADED:
        return ""
    return "not probed yet" if route.good is None else "not healthy yet: its last probe was bad"


@click.command()
@annotated
@on_cluster
def scale(
    cluster: Cluster,
    ref: Ref,
    replicas: Annotated[int, Argument(metavar="REPLICAS", help="Number of replicas.")],
    detach: Annotated[
        bool, Option("--detach", "-d", help="Do not wait until there are so many.")
    ] = False,
    timeout: Annotated[
        float | None,
        Option("--timeout", min=0, help="Wait so many seconds at most; it goes on anyway."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Give a deployment another number of replicas, and wait for them.

    Refused where the number follows load (`scale` in its file)."""
    with cluster.client() as client, suggesting(client, ref, [deployment_kind.KIND], state="live"):
        found = client.scale(ref, replicas)
    if detach:
        wants = f"deployment {found.name} wants {count(found.replicas, 'replica')}"
        show_change(found, wants, as_json=as_json)
        return
    view, code = follow(cluster, found, scaled, timeout_s=timeout, quiet=as_json)
    if as_json:
        print_json(view)
    raise click.exceptions.Exit(code)
