"""``muster submit``."""

from dataclasses import replace
from typing import Annotated

import click
from rich.text import Text

from muster.cli import kinds
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.hand_in import submitted
from muster.cli.parameters import Option
from muster.cli.placement_options import Placement, with_keys
from muster.cli.screen import plain, stderr
from muster.cli.spec_file import SpecFile, read_spec
from muster.cli.staying import Staying


@on_cluster
def submit(
    cluster: Cluster,
    file: Annotated[str, SpecFile],
    placement: Placement,
    staying: Staying,
    name: Annotated[
        str | None, Option("--name", help="Name it so, in place of the file's name.")
    ] = None,
    no_wait: Annotated[
        bool, Option("--no-wait", help="Exit code 2 if it does not start at once.")
    ] = False,
) -> None:
    """Hand in a job or a session from a file; prints its name and id."""
    from muster.core.specs import JobSpec, SessionSpec

    if staying.wait and no_wait:
        raise click.BadParameter("give one of --wait and --no-wait")
    spec = read_spec(file, JobSpec, SessionSpec)
    kind = next(each for each in kinds.work() if each.name == spec.kind)
    if keys := placement.keys() | ({"name": name} if name is not None else {}):
        spec = with_keys(spec, keys)
    if not staying.quiet and (note := kind.note(spec, file)):
        stderr().print(Text(f"note: {plain(note)}"), soft_wrap=True)
    display = replace(staying.display(), no_wait=no_wait)
    raise click.exceptions.Exit(submitted(cluster, spec, display))
