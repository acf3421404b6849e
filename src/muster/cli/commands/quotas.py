"""``muster quotas``, ``muster quota set`` and ``muster quota remove``."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.cli.arguments import AsJson
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.command_group import CommandGroup
from muster.cli.parameters import Argument, annotated
from muster.cli.screen import Column, stderr, stdout, table, write
from muster.cli.spec_file import SpecFile, read_spec
from muster.cli.streams import plain, print_json, say
from muster.core.resources import format_amount, format_bytes

if TYPE_CHECKING:
    from muster.core.views.cluster import LimitView, QuotaView


_SAID = {
    "sessions": "sessions",
    "pending_sessions": "sessions waiting",
    "open_work": "work not ended",
    "open_specs": "its specs",
    "ended_specs": "specs of ended work",
    "max_priority": "priority",
}
"""The limits of a quota that are on no resource, in words."""


@click.group(cls=CommandGroup)
def quota() -> None:
    """Limit a domain, a project or a user."""


@on_cluster
def quotas(cluster: Cluster, as_json: AsJson = False) -> None:
    """List the quotas, and what is used of them."""
    with cluster.client() as client:
        found = client.quotas()
    if as_json:
        print_json(found)
    elif found:
        console = stdout()
        write(console, quotas_table(console, found))
    else:
        stderr().print(Text("no quotas; `muster quota set FILE` makes one"))


@quota.command(name="set")
@annotated
@on_cluster
def set_quota(cluster: Cluster, file: Annotated[str, SpecFile]) -> None:
    """Limit somebody, in place of the limits they have."""
    from muster.core.specs import QuotaSpec

    spec = read_spec(file, QuotaSpec)
    with cluster.client() as client:
        set_ = client.put_quota(spec)
    click.echo(f"quota of {set_.level} {set_.name} set")
    if set_.is_nobodys:
        note = f"there is no {set_.level} {set_.name} yet: it holds from when there is"
        say(f"note: {plain(note)}")


@quota.command()
@annotated
@on_cluster
def remove(
    cluster: Cluster,
    level: Annotated[str, Argument(metavar="LEVEL", help="domain, project or user.")],
    name: Annotated[
        str, Argument(metavar="NAME", help="As `muster quotas` shows it: domain/project/…")
    ],
) -> None:
    """Have somebody have no limits of their own."""
    with cluster.client() as client:
        client.remove_quota(level, name)
    click.echo(f"quota of {level} {name} removed")


def quotas_table(console: Console, quotas: Sequence["QuotaView"]) -> Table:
    columns = [
        Column("LEVEL"),
        Column("NAME", shrinks=16),
        Column("LIMIT ON"),
        Column("USED", right=True),
        Column("LIMIT", right=True),
        Column("LARGEST", right=True, drops=2),
        Column("WEIGHT", right=True, drops=1),
    ]
    return table(console, columns, (row for quota in quotas for row in _rows(quota)))


def _rows(quota: "QuotaView") -> Iterator[list[Text | str]]:
    """A line for each limited thing, or one line for a quota that limits nothing."""
    name = quota.of or quota.name
    if name != quota.name:
        name += f" ({quota.name})"
    who = [quota.level, name]
    weight = f"{quota.weight:g}"
    limits = {_limited(limit): limit for limit in quota.limits}
    for said in dict.fromkeys((*limits, *quota.largest)):
        largest = quota.largest.get(said)
        shown = "" if largest is None else format_amount(said, largest)
        yield [*who, plain(said), *_amounts(limits.get(said)), shown, weight]
    numbers = (quota.sessions, quota.pending_sessions, quota.open_work, quota.max_priority)
    counted = [each for each in numbers if each is not None]
    for limit in counted:
        yield [*who, _SAID[limit.resource], _count(limit.used), _count(limit.limit), "", weight]
    for size in (quota.open_specs, quota.ended_specs):
        if size is not None:
            used = "" if size.used is None else format_bytes(size.used)
            yield [*who, _SAID[size.resource], used, format_bytes(size.limit), "", weight]
    for key in quota.unlimited:
        yield [*who, plain(key), "", "unlimited", "", weight]
    if not limits and not quota.largest and not counted:
        yield [*who, "-", "", "", "", weight]


def _limited(limit: "LimitView") -> str:
    """The thing that is limited: ``gpu (H100) in group a``."""
    model = "" if limit.model is None else f" ({limit.model})"
    group = "" if limit.group is None else f" in group {limit.group}"
    return f"{limit.resource}{model}{group}"


def _amounts(limit: "LimitView | None") -> tuple[str, str]:
    if limit is None:
        return "", ""
    used = "" if limit.used is None else format_amount(limit.resource, limit.used)
    return used, format_amount(limit.resource, limit.limit)


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"
