"""``muster slices``."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.cli.arguments import AsJson, InGroup
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.command_group import ListedGroup
from muster.cli.completion import complete_pool, complete_slice
from muster.cli.each import each_changed
from muster.cli.kinds import slice as slice_kind
from muster.cli.nearest import check_filters
from muster.cli.parameters import Argument, Option, annotated
from muster.cli.record_commands import show_command, verb_command
from muster.cli.screen import Column, status, stderr, stdout, table, tell_left_out, write
from muster.cli.streams import plain, print_json
from muster.cli.words import count, duration, sentence_of, shorten
from muster.core.verbs.pools import HOLD_SLICE, RELEASE_SLICE

if TYPE_CHECKING:
    from muster.core.views.pools import SliceView

SliceRef = Annotated[
    str,
    Argument(metavar="SLICE", help="Id or the beginning of one.", autocompletion=complete_slice),
]
SliceRefs = Annotated[
    list[str],
    Argument(metavar="SLICE...", help="Ids or beginnings of ids.", autocompletion=complete_slice),
]
OfPool = Annotated[
    str | None, Option("--pool", "-p", help="Show only this pool's.", autocompletion=complete_pool)
]


@click.group(cls=ListedGroup)
def slices() -> None:
    """List the slices of pools; hold, drain and delete them."""


@slices.command(name="list")
@annotated
@on_cluster
def list_slices(
    cluster: Cluster,
    pool: OfPool = None,
    group: InGroup = None,
    ended: Annotated[bool, Option("--all", "-a", help="Include those that are gone.")] = False,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Show so many of the newest.")] = 200,
    as_json: AsJson = False,
) -> None:
    """List the slices, newest first, and why each stays or goes."""
    with cluster.client() as client:
        state = "all" if ended else "live"
        found = client.slices(state, pool=pool, group=group, limit=limit + 1)
        if not found:
            check_filters(client, group=group, pool=pool)
    shown = found[:limit]
    if as_json:
        print_json(shown)
    elif shown:
        console = stdout()
        write(console, slices_table(console, shown, time.time()))
    else:
        stderr().print(Text("no slices; `muster autoscaler` tells what demand waits for"))
    tell_left_out(found, limit)


slices.add_command(
    show_command(
        slice_kind.KIND,
        lambda client: client.slices,
        SliceRef,
        "Show a slice with its machines.",
    )
)
slices.add_command(verb_command(HOLD_SLICE, slice_kind.KIND, SliceRefs))
slices.add_command(verb_command(RELEASE_SLICE, slice_kind.KIND, SliceRefs))


@slices.command()
@annotated
@on_cluster
def drain(
    cluster: Cluster,
    refs: SliceRefs,
    deadline: Annotated[
        str,
        Option(
            "--deadline",
            metavar="TIME",
            help="Then what still runs is stopped, to run elsewhere: never for never.",
        ),
    ] = "1h",
    as_json: AsJson = False,
) -> None:
    """Delete slices once their work has ended; they take no more."""
    within = None if deadline == "never" else deadline
    each_changed(
        cluster,
        refs,
        slice_kind.KIND,
        lambda client, ref: client.drain_slice(ref, deadline=within),
        _leaving,
        as_json=as_json,
    )


@slices.command()
@annotated
@on_cluster
def delete(
    cluster: Cluster,
    refs: SliceRefs,
    gone: Annotated[
        bool,
        Option(
            "--gone",
            help="You vouch that their machines are off for good: they end though their provider "
            "cannot delete them.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Delete slices; what runs on them has to leave at once."""
    each_changed(
        cluster,
        refs,
        slice_kind.KIND,
        lambda client, ref: client.delete_slice(ref, gone=gone),
        _given_up if gone else _leaving,
        as_json=as_json,
    )


def _given_up(slice_: "SliceView") -> str:
    return f"slice {slice_.id} is given up, as its machines are gone"


def _leaving(slice_: "SliceView") -> str:
    if slice_.finished_at is not None:
        return f"slice {slice_.id} is gone"
    said = f"slice {slice_.id} is being deleted and takes nothing new; "
    if not slice_.kernels:
        return said + "it is empty"
    said += f"it runs {count(slice_.kernels, 'kernel')}"
    left_s = None if slice_.leave_by is None else slice_.leave_by - time.time()
    if left_s is None:
        return said + ", to the end"
    return f"{said}, for {duration(left_s)} at most" if left_s > 1 else f"{said}, told to leave"


def slices_table(console: Console, slices: "Sequence[SliceView]", now: float) -> Table:
    """Slices with their ages, and why each stays or goes."""
    short = shorten(each.id for each in slices)
    columns = [
        Column("ID"),
        Column("POOL", shrinks=12),
        Column("STATUS"),
        Column("FOR", right=True),
        Column("MACHINES", right=True, drops=1),
        Column("KERNELS", right=True, drops=2),
        Column("COST", right=True, drops=3),
        Column("WHY", flexible=True),
    ]
    return table(console, columns, (_row(each, short[each.id], now) for each in slices))


def _row(slice_: "SliceView", short: str, now: float) -> list[Text | str]:
    ended = slice_.finished_at is not None
    return [
        f"{slice_.id.partition('-')[0]}-{short}",
        slice_.pool,
        _status(slice_),
        "-" if ended else duration(now - slice_.status_changed_at),
        _machines(slice_),
        f"{slice_.kernels:,}",
        f"{slice_.cost:,.2f}",
        plain(_why(slice_)),
    ]


def _status(slice_: "SliceView") -> Text:
    shown = status(slice_.status)
    if slice_.doomed is not None and slice_.finished_at is None:
        shown = Text.assemble(shown, ", leaving")
    return Text.assemble(shown, ", outdated") if slice_.outdated else shown


def _machines(slice_: "SliceView") -> str:
    total = len(slice_.machines) + slice_.other_machines
    return f"{slice_.joined:,}/{total:,}" if slice_.finished_at is None else f"{total:,}"


def _why(slice_: "SliceView") -> str:
    """The reason for which a slice goes, stays, or has not come yet."""
    for why in (slice_.doomed, slice_.silent, slice_.reason, slice_.stays):
        if why is not None:
            return sentence_of(why)
    return ""
