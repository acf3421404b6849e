"""``muster submit``."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from rich.text import Text

from muster.cli.hand_in import submitted
from muster.cli.parameters import Option
from muster.cli.placement_options import Placement, with_keys
from muster.cli.screen import plain, stderr
from muster.cli.spec_file import SpecFile, directory_of, read_spec
from muster.cli.staying import Staying
from muster.cli.target import Target, on_cluster
from muster.client.workdir import current_directory

if TYPE_CHECKING:
    from muster.core.specs import JobSpec


@on_cluster
def submit(
    target: Target,
    file: Annotated[str, SpecFile],
    placement: Placement,
    staying: Staying,
    name: Annotated[str | None, Option("--name", help="In place of the file's.")] = None,
    no_wait: Annotated[
        bool, Option("--no-wait", help="Exit code 2 if it does not start at once.")
    ] = False,
) -> None:
    """Hand in a job or a session from a file; prints its name and id."""
    from muster.core.specs import JobSpec, ScalingGroup, SessionSpec

    if staying.wait and no_wait:
        raise click.BadParameter("give one of --wait and --no-wait")
    spec = read_spec(file)
    if isinstance(spec, ScalingGroup):
        raise click.BadParameter(f"{file} is a group: use `muster groups apply {file}`")
    if not isinstance(spec, JobSpec | SessionSpec):
        raise click.BadParameter(f"{file} is a {spec.kind}, which is not work to hand in")
    if keys := placement.keys() | ({"name": name} if name is not None else {}):
        spec = with_keys(spec, keys)
    if isinstance(spec, JobSpec) and not staying.quiet and (left := left_behind(spec)):
        here = "." if directory_of(file) == current_directory() else current_directory()
        stderr().print(
            Text(
                f"note: it runs in an empty directory of its own, without {plain(left)}; "
                f"`workdir: {here}` in {plain(file)} makes it run here"
            ),
            soft_wrap=True,
        )
    display = replace(staying.display(), no_wait=no_wait)
    raise click.exceptions.Exit(submitted(target, spec, display))


def left_behind(spec: "JobSpec") -> str | None:
    """A file of the current directory that the job's command names and will not find in its scratch
    directory; None if there is none."""
    import shlex

    if spec.workdir is not None:
        return None
    words = spec.command
    if len(words) == 3 and words[:2] == ["/bin/sh", "-c"]:
        with suppress(ValueError):  # quotes that only the shell understands
            words = shlex.split(words[2])
    for word in words:
        with suppress(OSError, ValueError):  # too long for a path, or no path
            if not word.startswith("/") and word not in spec.files and Path(word).is_file():
                return word
    return None
