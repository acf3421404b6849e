"""``muster autoscaler``."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from rich.console import Console, RenderableType
from rich.text import Text

from muster.cli.arguments import AsJson, InGroup
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.commands.pools import COLUMNS, pool_row
from muster.cli.commands.slices import slices_table
from muster.cli.described.pool import price, said_of
from muster.cli.parameters import Option
from muster.cli.screen import stderr, stdout, table, write
from muster.cli.streams import plain, print_json
from muster.cli.words import count, moment, sentence_of

if TYPE_CHECKING:
    from muster.core.views.pools import (
        AutoscalerView,
        RefusalView,
        RoutedView,
        ShapeView,
        SliceView,
        UnmetView,
        UsageView,
    )

SLICES = 30
"""Slices of a group that are listed."""
_WHERE = {
    "free": "on agents that are there",
    "coming": "on slices that are coming",
    "launch": "on slices that were asked for",
}


@on_cluster
def autoscaler(
    cluster: Cluster,
    group: InGroup = None,
    verbose: Annotated[
        bool,
        Option("--verbose", "-v", help="Show each session, and what slices in flight have left."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show pools, slices, and where waiting work is to run."""
    with cluster.client() as client:
        found = client.autoscaler(group)
        slices = {
            each.group: client.slices(group=each.group, limit=SLICES)
            for each in found
            if not as_json
        }
    if as_json:
        print_json(found)
    elif found:
        console, now = stdout(), time.time()
        for index, each in enumerate(found):
            gap = [Text("")] if index else []
            write(console, *gap, *group_parts(console, each, slices[each.group], now))
            if verbose:
                write(console, *_entries(each))
    else:
        stderr().print(Text("no pools; `muster pools apply FILE` makes one"))


def group_parts(
    console: Console, group: "AutoscalerView", slices: "Sequence[SliceView]", now: float
) -> "Iterator[RenderableType]":
    """A group: its pools and slices, the last decision about its demand, and its cost."""
    yield Text.assemble((f"group {plain(group.group)}", "bold"), f"  {_total(group)}")
    yield table(console, COLUMNS, map(pool_row, group.pools))
    if group.other_pools:
        yield Text(f"and {count(group.other_pools, 'pool')} more")
    if slices:
        yield Text("")
        yield slices_table(console, slices, now)
        if (more := sum(group.slices.values()) - len(slices)) > 0:
            yield Text(f"and {count(more, 'slice')} more: `muster slices list`")
    if group.routed or group.unmet or group.withheld:
        yield Text("")
    if group.is_former and group.decided_at is not None:
        yield Text(f"decided at {moment(group.decided_at)}, before this controller started:")
    for routed in group.routed:
        yield Text(plain(_routed(routed)))
    if group.other_routed:
        yield Text(f"and {count(group.other_routed, 'shape')} more that find room")
    for unmet in group.unmet:
        yield from _unmet(unmet)
    for withheld in group.withheld:
        said = "; ".join(sentence_of(each) for each in withheld.reasons)
        yield Text(plain(f"{_shape(withheld.shape)}: no demand: {said}"))
    if group.other_unmet:
        yield Text(f"and {count(group.other_unmet, 'shape')} more that find none")
    yield Text("")
    yield Text(_cost(group))


def _entries(group: "AutoscalerView") -> "Iterator[RenderableType]":
    """The room that slices in flight have left, and the destination of each entry."""
    for each in group.pending:
        said = f"pool {each.pool}: {count(each.slices, 'slice')} in flight for "
        said += f"{count(each.entries, 'session')}, {each.remaining} left"
        yield Text(plain(said))
    for entry in group.entries:
        tasks = f" ({', '.join(entry.tasks)})" if entry.tasks else ""
        more = [f"{entry.other_slices:,} more"] if entry.other_slices else []
        on = ", ".join([*entry.slices, *more]) or _WHERE.get(entry.destination, entry.destination)
        of_pool = f" of pool {entry.pool}" if entry.pool else ""
        yield Text(plain(f"{entry.session}{tasks}: {on}{of_pool}: {entry.why}"))
    if group.other_entries:
        yield Text(f"and {count(group.other_entries, 'session')} more")


def _total(group: "AutoscalerView") -> str:
    said = [
        said_of(group.slices, group.leaving),
        count(group.machines, "machine") + _most(group.max_machines),
    ]
    if group.gpus or group.max_gpus is not None:
        said.append(count(group.gpus, "GPU") + _most(group.max_gpus))
    limit = "" if group.max_price is None else f" of at most {price(group.max_price)}"
    return ", ".join([*said, f"{price(group.price)} an hour{limit}"])


def _most(limit: int | None) -> str:
    return "" if limit is None else f" of at most {limit:,}"


def _shape(shape: "ShapeView") -> str:
    said = f"{count(shape.sessions, 'session')}"
    said += f" of {shape.kernels:,} kernels" if shape.kernels > 1 else ""
    said += f" asking for {shape.asks}"
    return said + (f" where {' and '.join(shape.rules)}" if shape.rules else "")


def _routed(routed: "RoutedView") -> str:
    said = f"{_shape(routed.shape)}: {_WHERE.get(routed.destination, routed.destination)}"
    if routed.pool is not None:
        said += f" of pool {routed.pool}"
    if routed.slices:
        more = f" and {routed.other_slices:,} more" if routed.other_slices else ""
        said += f" ({', '.join(routed.slices)}{more})"
    return said


def _unmet(unmet: "UnmetView") -> "Iterator[RenderableType]":
    said = "no pool can" if not unmet.could_be_met else "no pool may make more now"
    near = f"; did you mean {unmet.nearest}?" if unmet.nearest else ""
    yield Text(plain(f"{_shape(unmet.shape)}: {said}{near}"), style="yellow")
    if unmet.never is not None:
        yield Text(plain(f"  {sentence_of(unmet.never)}"))
        return
    for refusal in unmet.pools:
        yield Text(plain(f"  {_refusal(refusal)}"))
    if unmet.other_pools:
        yield Text(f"  and {count(unmet.other_pools, 'pool')} more")


def _refusal(refusal: "RefusalView") -> str:
    return "; ".join(sentence_of(each) for each in refusal.reasons) or f"pool {refusal.pool}"


def _cost(group: "AutoscalerView") -> str:
    said = f"used so far: {_use(group.live)} by slices that are there"
    if group.ended.slices and group.ended_since is not None:
        said += f", {_use(group.ended)} by {group.ended.slices:,} that ended since "
        said += moment(group.ended_since)
    return said


def _use(use: "UsageView") -> str:
    return f"{use.machine_hours:,.2f} machine-hours ({price(use.cost)})"
