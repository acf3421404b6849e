"""``muster changes``."""

import time
from typing import TYPE_CHECKING, Annotated

from rich.text import Text

from muster.cli.arguments import AsJson
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.completion import complete_user
from muster.cli.parameters import Option
from muster.cli.screen import Column, show_listing
from muster.cli.streams import plain
from muster.cli.words import clock_time
from muster.core.settings import SettingKind, difference_said

if TYPE_CHECKING:
    from muster.core.views.settings import ChangeView

_COLUMNS = [
    Column("WHEN"),
    Column("WHO", shrinks=16),
    Column("KIND"),
    Column("NAME", shrinks=12),
    Column("DONE"),
    Column("CHANGES", flexible=True, wraps=True),
]


@on_cluster
def changes(
    cluster: Cluster,
    kind: Annotated[
        str | None,
        Option(
            "--kind", metavar="KIND", help=f"Show only those of a {', '.join(SettingKind)} or pool."
        ),
    ] = None,
    by: Annotated[
        str | None,
        Option(
            "--by",
            metavar="USER",
            help="Show only those that USER made.",
            autocompletion=complete_user,
        ),
    ] = None,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Show so many of the newest.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List changes of settings, and who made them.

    Settings are groups, quotas, users, projects, domains and tokens; pools are listed, too. The
    newest come first. `muster history` has those of one of them.
    """
    with cluster.client() as client:
        found = client.changes(kind=kind, by=by, limit=limit + 1)
    now = time.time()
    show_listing(found, _COLUMNS, lambda each: _row(each, now), as_json=as_json, limit=limit)


def _row(change: "ChangeView", now: float) -> list[Text | str]:
    said = (difference_said(each.key, each.before, each.after) for each in change.changes)
    return [
        clock_time(change.at, now),
        plain(change.by or "the controller"),
        change.kind,
        plain(change.name),
        change.what,
        plain("; ".join(said)),
    ]
