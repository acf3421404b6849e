"""``muster recoveries``."""

import time
from typing import TYPE_CHECKING, Annotated

import click
from rich.text import Text

from muster.cli.arguments import AsJson, InGroup
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.command_group import ListedGroup
from muster.cli.completion import complete_recovery
from muster.cli.each import each_record
from muster.cli.kinds import recovery as recovery_kind
from muster.cli.parameters import Argument, Option, annotated
from muster.cli.record_commands import show_command
from muster.cli.screen import Column, show_change, show_listing, status, stderr
from muster.cli.streams import plain
from muster.cli.words import duration, sentence_of, shorten

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.recoveries import RecoveryView

_REF = "Job's name, or the recovery's id or the beginning of one."
RecoveryRef = Annotated[
    str, Argument(metavar="RECOVERY", help=_REF, autocompletion=complete_recovery)
]


@click.group(cls=ListedGroup)
def recoveries() -> None:
    """List how jobs recover from faults of their machines."""


@recoveries.command(name="list")
@annotated
@on_cluster
def list_recoveries(
    cluster: Cluster,
    group: InGroup = None,
    ended: Annotated[
        bool, Option("--all", "-a", help="Include those of jobs that have ended.")
    ] = False,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Show so many of the newest.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the recoveries of jobs, and what each waits for."""
    with cluster.client() as client:
        state = "all" if ended else "live"
        found = client.recoveries(state, group=group, limit=limit + 1)
    columns = [
        Column("ID", drops=2),
        Column("JOB", shrinks=12),
        Column("STATUS"),
        Column("FOR", right=True),
        Column("RESTARTS", right=True, drops=1),
        Column("RAN", right=True, drops=3),
        Column("AGENTS", shrinks=12, drops=4),
        Column("WHY", flexible=True, wraps=True),
    ]
    if not found and not as_json:
        what = "no recovery" if ended else "no recovery is under way"
        stderr().print(Text(f"{what}; `muster run --recovery` has a job recover"))
        return
    now, short = time.time(), shorten(each.id for each in found)
    show_listing(
        found, columns, lambda each: _row(each, short[each.id], now), as_json=as_json, limit=limit
    )


def _row(recovery: "RecoveryView", short: str, now: float) -> list[Text | str]:
    ratio = recovery.training_ratio(now)
    ended = recovery.finished_at is not None
    return [
        f"{recovery.id.partition('-')[0]}-{short}",
        plain(recovery.name),
        status(recovery.status),
        "-" if ended else duration(now - recovery.status_changed_at),
        str(recovery.restarts),
        "" if ratio is None else f"{ratio:.0%}",
        plain(", ".join(recovery.agents)),
        plain(sentence_of(recovery.reason)) if recovery.reason else "",
    ]


recoveries.add_command(
    show_command(
        recovery_kind.KIND,
        lambda client: client.recoveries,
        RecoveryRef,
        "Show a recovery with its rounds, and what it cost.",
    )
)


@recoveries.command()
@annotated
@on_cluster
def stop(
    cluster: Cluster,
    refs: Annotated[
        list[str],
        Argument(metavar="RECOVERY...", help=_REF, autocompletion=complete_recovery),
    ],
    as_json: AsJson = False,
) -> None:
    """Stop recoveries with their jobs; machines under suspicion heal on."""

    def stop_and_tell(client: "Client", ref: str) -> None:
        stopped = client.recoveries.cancel(ref)
        show_change(stopped, stopped.message, as_json=as_json)

    each_record(cluster, refs, recovery_kind.KIND, stop_and_tell)
