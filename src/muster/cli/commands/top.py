"""``muster top``."""

from typing import TYPE_CHECKING, Annotated

import click
from rich.console import Console, Group, RenderableType
from rich.text import Text

from muster.cli.arguments import AsJson, InGroup
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.completion import complete_deployment
from muster.cli.kinds import deployment as deployment_kind
from muster.cli.nearest import check_filters, suggesting
from muster.cli.parameters import Argument, Option, annotated
from muster.cli.screen import Column, status, stderr, stdout, table, write
from muster.cli.streams import plain, print_json
from muster.cli.watching import watch
from muster.cli.words import count
from muster.core.text import healthy_of

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.deployments import (
        DeploymentLoadView,
        LoadView,
        RouteLoadView,
        TopView,
    )

LOOKED_AT = 1000
"""The newest deployments, of which those with the most requests are shown."""
_LOADS = [
    Column("UNDER WAY", right=True, drops=3),
    Column("PER S", right=True),
    Column("FAILED", right=True),
    Column("P50", right=True),
    Column("P99", right=True),
]


@click.command()
@annotated
@on_cluster
def top(
    cluster: Cluster,
    ref: Annotated[
        str | None,
        Argument(
            metavar="[DEPLOYMENT]",
            help="Deployment, shown by replica; all deployments without it.",
            autocompletion=complete_deployment,
        ),
    ] = None,
    group: InGroup = None,
    watched: Annotated[
        bool, Option("--watch", "-w", help="Keep showing them as they change.", field="watch")
    ] = False,
    limit: Annotated[
        int, Option("--limit", "-n", min=1, help="Show so many of the busiest.")
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """Show the requests of deployments: rate, failures, latency.

    Failures and latencies are those of the last minute, as the proxies saw them."""
    if ref is not None and group is not None:
        raise click.BadParameter("give a DEPLOYMENT or --group")
    if watched:

        def look(client: "Client", console: Console, lines: int) -> RenderableType:
            if ref is not None:
                return Group(*_of_one(console, client.top(ref), lines))
            found = _busiest(client, group)
            return _of_all(console, found[: min(limit, lines)])

        watch(cluster, look, as_json=as_json)
        return
    with cluster.client() as client:
        if ref is not None:
            with suggesting(client, ref, [deployment_kind.KIND]):
                one = client.top(ref)
            if as_json:
                print_json(one)
            else:
                write(stdout(), *_of_one(stdout(), one, LOOKED_AT))
            return
        found = _busiest(client, group)
        if not found and not as_json:
            check_filters(client, group=group)
    if as_json:
        print_json(found[:limit])
    elif not found:
        stderr().print(Text("no deployments; `muster deploy FILE` makes one"))
    else:
        write(stdout(), _of_all(stdout(), found[:limit]))
    if len(found) > limit:
        stderr().print(Text(f"calmer ones are left out: --limit {limit * 10} shows more"))


def _busiest(client: "Client", group: str | None) -> "list[DeploymentLoadView]":
    """Deployments, the one with the most requests first."""
    found = client.loads(group=group, limit=LOOKED_AT)
    return sorted(found, key=lambda each: (-_busy(each.load), each.deployment.name))


def _busy(load: "LoadView") -> float:
    return load.rate + load.in_flight + load.held


def _of_all(console: Console, found: "list[DeploymentLoadView]") -> RenderableType:
    columns = [
        Column("NAME", shrinks=12),
        Column("HEALTHY", right=True),
        Column("WAITING", right=True, drops=2),
        *_LOADS,
    ]

    def row(each: "DeploymentLoadView") -> list[Text | str]:
        of = each.deployment
        healthy = f"{of.healthy}/{of.replicas}"
        return [plain(of.name), healthy, f"{each.load.held:,}", *_cells(each.load)]

    return table(console, columns, map(row, found))


def _of_one(console: Console, found: "TopView", lines: int) -> list[RenderableType]:
    columns = [
        Column("ROUTE"),
        Column("STATUS"),
        Column("REVISION", right=True, drops=2),
        *_LOADS,
        Column("REQUESTS", right=True, drops=4),
    ]

    def row(each: "RouteLoadView") -> list[Text | str]:
        route = each.route
        revision = str(route.revision)
        total = f"{each.load.requests:,}"
        return [route.id, status(route.status), revision, *_cells(each.load), total]

    of, load = found.deployment, found.load
    said = f"{of.name}: {healthy_of(of.healthy, of.replicas)}, "
    said += f"{load.in_flight:,} under way, {load.rate:.1f} a second, "
    if load.recent:
        said += f"{_failed(load)} failed, p50 {_latency(load.p50_s)}, p99 {_latency(load.p99_s)}"
    else:
        said += "none ended in the last minute"
    if load.held:
        said += (
            f"; {count(load.held, 'request')} {'waits' if load.held == 1 else 'wait'} for a replica"
        )
    shown = found.routes[:lines]
    parts: list[RenderableType] = [Text(plain(said))]
    return [*parts, table(console, columns, map(row, shown))] if shown else parts


def _cells(load: "LoadView") -> list[Text | str]:
    return [
        f"{load.in_flight:,}",
        f"{load.rate:.1f}",
        _failed(load),
        _latency(load.p50_s),
        _latency(load.p99_s),
    ]


def _failed(load: "LoadView") -> str:
    """The share of the last minute's requests that failed; a dash where there were none."""
    if not load.recent:
        return "-"
    percent = 100 * load.recent_failures / load.recent
    return f"{percent:.1f} %" if percent else "0 %"


def _latency(seconds: float | None) -> str:
    return "-" if seconds is None else f"≤{seconds * 1000:g} ms"
