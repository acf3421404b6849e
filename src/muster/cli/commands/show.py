"""``muster show``."""

from typing import Annotated

from muster.cli import kinds
from muster.cli.arguments import AnyRef, AsJson, kind_of, parse_ref
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.kinds.kind import Shown
from muster.cli.nearest import suggesting
from muster.cli.parameters import Option
from muster.cli.removed_output import removed_outputs
from muster.cli.request import pairs
from muster.cli.screen import stdout, write
from muster.cli.streams import print_json


@on_cluster
def show(
    cluster: Cluster,
    ref: AnyRef,
    tasks: Annotated[
        bool, Option("--tasks", help="List the tasks by index, not the noteworthy few.")
    ] = False,
    limit: Annotated[
        int | None,
        Option("--limit", "-n", min=1, max=1000, help="List so many tasks. [default: 100]"),
    ] = None,
    offset: Annotated[
        int | None, Option("--offset", min=0, help="List tasks from the so many-th on.")
    ] = None,
    where: Annotated[
        list[str] | None,
        Option(
            "--where",
            metavar="NAME=VALUE",
            help="List the tasks with this value of a parameter; may be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a record, such as a job, one task of it, or an agent.

    --limit and --offset choose a page of its tasks, with --json too: --tasks has them alone then,
    without it the job has up to 1,000 of them."""
    subject = parse_ref(ref)
    values = pairs(where or [], "--where", "a parameter and its value, such as lr=0.1")
    every = tasks or bool(values) or (not as_json and (limit is not None or offset is not None))
    shown = Shown(subject.index, every, limit, offset or 0, values)
    with cluster.client() as client, suggesting(client, ref, kinds.every()):
        found = client.show(subject.ref)
        kind = kind_of(found, subject)
        if as_json:
            print_json(kind.as_json(client, found, shown))
            return
        console = stdout()
        parts = kind.described(console, client, found, shown)
        removed = removed_outputs(client, found, shown.part)
    write(console, *parts, *removed)
