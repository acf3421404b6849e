"""``muster pools``."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import click
from rich.text import Text

from muster.cli.arguments import AsJson
from muster.cli.cluster import Ca, Cluster, Home, Token, Url, on_cluster
from muster.cli.completion import complete_group, complete_pool
from muster.cli.described.pool import price
from muster.cli.nearest import suggesting
from muster.cli.parameters import Argument, Option, annotated, command_of
from muster.cli.screen import (
    Column,
    plain,
    print_json,
    show_change,
    show_listing,
    status,
    stderr,
    stdout,
    write,
)
from muster.cli.spec_file import SpecFile, read_spec
from muster.cli.words import count
from muster.core.states.slice import SliceStatus

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.pools import PoolView

PoolRef = Annotated[
    str,
    Argument(metavar="POOL", help="Name, id or beginning of an id.", autocompletion=complete_pool),
]
InGroup = Annotated[
    str | None,
    Option("--group", "-g", help="Only this group's.", autocompletion=complete_group),
]
Ended = Annotated[bool, Option("--all", "-a", help="Those that are gone, too.")]

COLUMNS = (
    Column("NAME", shrinks=12),
    Column("STATUS"),
    Column("GROUP", drops=4),
    Column("PROVIDER", drops=3),
    Column("SLICES", right=True),
    Column("READY", right=True),
    Column("MACHINES", right=True, drops=1),
    Column("PRICE/H", right=True, drops=2),
    Column("NOTE", flexible=True),
)


@click.group(invoke_without_command=True)
@annotated
def pools(
    ctx: click.Context,
    group: InGroup = None,
    as_json: AsJson = False,
    url: Url = None,
    token: Token = None,
    home: Home = None,
    ca: Ca = None,
) -> None:
    """List the pools of machines, and why one makes nothing."""
    cluster: Cluster = ctx.obj.said(url, token, home, ca)
    ctx.obj = cluster
    if ctx.invoked_subcommand is None:
        _list(cluster, group, as_json=as_json)


@on_cluster
def list_pools(
    cluster: Cluster, group: InGroup = None, ended: Ended = False, as_json: AsJson = False
) -> None:
    """List the pools."""
    _list(cluster, group, "all" if ended else "live", as_json=as_json)


def _list(cluster: Cluster, group: str | None, state: str = "live", *, as_json: bool) -> None:
    with cluster.client() as client:
        found = client.pools(state, group=group, limit=1000)
    if found or as_json:
        show_listing(found, COLUMNS, pool_row, as_json=as_json)
    else:
        stderr().print(Text("no pools; `muster pools apply FILE` makes one"))


@pools.command()
@annotated
@on_cluster
def apply(
    cluster: Cluster,
    file: Annotated[str, SpecFile],
    no_check: Annotated[
        bool, Option("--no-check", help="Do not ask the provider if it could make the machines.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a pool, or change it: what the file leaves out is the default."""
    from muster.core.specs import PoolSpec

    spec = read_spec(file, PoolSpec)
    with cluster.client() as client:
        applied = client.apply_pool(spec, check=not no_check)
    said = f"pool {applied.name} applied"
    if applied.outdated:
        alone = applied.outdated == 1
        said += (
            f"; {count(applied.outdated, 'slice')} of former revisions "
            f"{'stays as it is' if alone else 'stay as they are'}, "
            f"`muster pools replace {applied.name}` replaces {'it' if alone else 'them'}"
        )
    show_change(applied, said, as_json=as_json)


@pools.command()
@annotated
@on_cluster
def show(cluster: Cluster, ref: PoolRef, as_json: AsJson = False) -> None:
    """Show a pool."""
    from muster.cli.described.pool import pool_parts

    found = _on_pool(cluster, ref, lambda client: client.pools.show(ref))
    if as_json:
        print_json(found)
    else:
        write(stdout(), *pool_parts(found, time.time()))


@pools.command()
@annotated
@on_cluster
def pause(cluster: Cluster, ref: PoolRef, as_json: AsJson = False) -> None:
    """Have a pool make nothing more; its idle slices still go."""
    paused = _on_pool(cluster, ref, lambda client: client.pause_pool(ref))
    show_change(paused, f"pool {paused.name} is paused: it makes nothing more", as_json=as_json)


@pools.command()
@annotated
@on_cluster
def resume(cluster: Cluster, ref: PoolRef, as_json: AsJson = False) -> None:
    """Have a pool make machines again, after pause or when it stands still."""
    resumed = _on_pool(cluster, ref, lambda client: client.resume_pool(ref))
    show_change(resumed, f"pool {resumed.name} makes machines again", as_json=as_json)


@pools.command()
@annotated
@on_cluster
def replace(
    cluster: Cluster,
    ref: PoolRef,
    at_a_time: Annotated[
        int, Option("--at-a-time", "-n", min=0, max=10_000, help="Slices; 0 ends it.")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Replace a pool's outdated slices, idle ones first, each once its work has ended."""
    replaced = _on_pool(
        cluster, ref, lambda client: client.replace_slices(ref, at_a_time=at_a_time)
    )
    slices = count(replaced.outdated, "outdated slice")
    if at_a_time:
        said = f"pool {replaced.name} replaces {slices}, {at_a_time:,} at a time"
    else:
        said = f"pool {replaced.name} leaves {slices} as {_are(replaced.outdated)}"
    show_change(replaced, said, as_json=as_json)


@pools.command()
@annotated
@on_cluster
def delete(cluster: Cluster, ref: PoolRef, as_json: AsJson = False) -> None:
    """Delete a pool with all its slices; what runs on them has to leave."""
    deleted = _on_pool(cluster, ref, lambda client: client.delete_pool(ref))
    left = sum(deleted.slices.values())
    said = f"pool {deleted.name} is being deleted; {count(left, 'slice')} to go"
    if deleted.finished_at is not None:
        said = f"pool {deleted.name} is deleted"
    show_change(deleted, said, as_json=as_json)


pools.add_command(command_of(list_pools), "list")


def _on_pool(cluster: Cluster, ref: str, act: "Callable[[Client], PoolView]") -> "PoolView":
    """The answer about one pool; names like an unknown one are suggested."""
    from muster.cli.kinds import pool

    with cluster.client() as client, suggesting(client, ref, [pool.KIND]):
        return act(client)


def _are(number: int) -> str:
    return "it is" if number == 1 else "they are"


def pool_row(pool: "PoolView") -> list[Text | str]:
    """A pool as a line of the table."""
    return [
        pool.name,
        status(pool.status),
        pool.group,
        pool.provider,
        f"{sum(pool.slices.values()):,}/{pool.spec.get('max_slices', '?')}",
        f"{pool.slices.get(SliceStatus.READY, 0):,}",
        f"{pool.machines:,}",
        price(pool.price),
        plain(_note(pool)),
    ]


def _note(pool: "PoolView") -> str:
    """The first thing that a person should know of the pool."""
    for why in (pool.closed, pool.differs):
        if why is not None:
            return why.sentence
    if pool.list_error:
        return f"its machines cannot be listed: {pool.list_error}"
    return f"{count(pool.outdated, 'slice')} outdated" if pool.outdated else ""
