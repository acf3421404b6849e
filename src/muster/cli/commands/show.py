"""``muster show``."""

from typing import Annotated

from muster.cli import kinds
from muster.cli.arguments import AnyRef, AsJson, kind_of, parse_ref
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.kinds.kind import Shown
from muster.cli.nearest import suggesting
from muster.cli.parameters import Option
from muster.cli.removed_output import removed_outputs
from muster.cli.screen import print_json, stdout, write


@on_cluster
def show(
    cluster: Cluster,
    ref: AnyRef,
    tasks: Annotated[
        bool, Option("--tasks", help="List the tasks by index, not the noteworthy few.")
    ] = False,
    limit: Annotated[
        int, Option("--limit", "-n", min=1, max=1000, help="List so many tasks with --tasks.")
    ] = 100,
    offset: Annotated[
        int, Option("--offset", min=0, help="Leave out so many tasks before those of --tasks.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Show a record, such as a job, one task of it, or an agent."""
    subject = parse_ref(ref)
    shown = Shown(subject.index, tasks, limit, offset)
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
