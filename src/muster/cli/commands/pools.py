"""``muster pools``."""

from typing import TYPE_CHECKING, Annotated

import click
from rich.text import Text

from muster.cli.arguments import AsJson, InGroup
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.command_group import ListedGroup
from muster.cli.completion import complete_pool
from muster.cli.described.pool import price
from muster.cli.each import each_changed
from muster.cli.kinds import pool as pool_kind
from muster.cli.nearest import check_filters
from muster.cli.parameters import Argument, Option, annotated
from muster.cli.record_commands import show_command, verb_command
from muster.cli.screen import Column, show_change, show_listing, status, stderr
from muster.cli.spec_file import SpecFile, read_spec
from muster.cli.streams import plain
from muster.cli.words import count, sentence_of
from muster.core.states.slice import SliceStatus
from muster.core.verbs.pools import PAUSE_POOL, RESUME_POOL

if TYPE_CHECKING:
    from muster.core.views.pools import PoolView

PoolRef = Annotated[
    str,
    Argument(metavar="POOL", help="Name, id or beginning of an id.", autocompletion=complete_pool),
]
PoolRefs = Annotated[
    list[str],
    Argument(
        metavar="POOL...", help="Names, ids or beginnings of ids.", autocompletion=complete_pool
    ),
]

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


@click.group(cls=ListedGroup)
def pools() -> None:
    """List, make, change and delete pools of machines."""


@pools.command(name="list")
@annotated
@on_cluster
def list_pools(
    cluster: Cluster,
    group: InGroup = None,
    ended: Annotated[bool, Option("--all", "-a", help="Include those that are gone.")] = False,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Show so many of the newest.")] = 200,
    as_json: AsJson = False,
) -> None:
    """List the pools, newest first, and why one makes nothing."""
    with cluster.client() as client:
        found = client.pools("all" if ended else "live", group=group, limit=limit + 1)
        if not found:
            check_filters(client, group=group)
    if found or as_json:
        show_listing(found, COLUMNS, pool_row, as_json=as_json, limit=limit)
    else:
        of = "" if group is None else f" of group {plain(group)}"
        stderr().print(Text(f"no pools{of}; `muster pools apply FILE` makes one"))


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
    """Make a pool, or change it. What the file leaves out is the default."""
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


pools.add_command(
    show_command(pool_kind.KIND, lambda client: client.pools, PoolRef, "Show a pool.")
)
pools.add_command(verb_command(PAUSE_POOL, pool_kind.KIND, PoolRefs))
pools.add_command(verb_command(RESUME_POOL, pool_kind.KIND, PoolRefs))


@pools.command()
@annotated
@on_cluster
def replace(
    cluster: Cluster,
    refs: PoolRefs,
    at_a_time: Annotated[
        int,
        Option(
            "--at-a-time",
            "-n",
            min=0,
            max=10_000,
            help="Replace so many slices of each pool at a time; 0 ends it.",
        ),
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Replace outdated slices of pools. Idle ones come first, each once its work has ended."""

    def said(replaced: "PoolView") -> str:
        slices = count(replaced.outdated, "outdated slice")
        if not replaced.outdated:
            return f"pool {replaced.name} has no outdated slices"
        if at_a_time:
            return f"pool {replaced.name} replaces {slices}, {at_a_time:,} at a time"
        return f"pool {replaced.name} leaves {slices} as {_are(replaced.outdated)}"

    each_changed(
        cluster,
        refs,
        pool_kind.KIND,
        lambda client, ref: client.replace_slices(ref, at_a_time=at_a_time),
        said,
        as_json=as_json,
    )


@pools.command()
@annotated
@on_cluster
def delete(cluster: Cluster, refs: PoolRefs, as_json: AsJson = False) -> None:
    """Delete pools with all their slices. What runs on them has to leave."""
    each_changed(
        cluster,
        refs,
        pool_kind.KIND,
        lambda client, ref: client.delete_pool(ref),
        _deleted,
        as_json=as_json,
    )


def _deleted(pool: "PoolView") -> str:
    if pool.finished_at is not None:
        return f"pool {pool.name} is deleted"
    slices = count(sum(pool.slices.values()), "slice")
    return f"pool {pool.name} is being deleted; {slices} to go"


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
    not_listed = f"its machines cannot be listed: {pool.list_error}" if pool.list_error else ""
    if not_listed and pool.status == "DELETING":
        return not_listed  # its end waits for that
    for why in (pool.closed, pool.differs):
        if why is not None:
            return sentence_of(why)
    if not_listed:
        return not_listed
    return f"{count(pool.outdated, 'slice')} outdated" if pool.outdated else ""
