"""``muster submit``."""

from typing import TYPE_CHECKING, Annotated, Any

import click
from rich.text import Text

from muster.cli import kinds
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.hand_in import submitted
from muster.cli.job_options import Environment, ResourceOptions, Tasks
from muster.cli.parameters import Argument, Option
from muster.cli.placement_options import Placement, with_keys
from muster.cli.request import without_nones
from muster.cli.screen import stderr
from muster.cli.spec_file import SpecFile, read_spec
from muster.cli.staying import Staying
from muster.cli.streams import plain
from muster.core.errors import InvalidSpec, Problem

if TYPE_CHECKING:
    from muster.core.specs.amounts import Spec


@on_cluster
def submit(
    cluster: Cluster,
    file: Annotated[str, SpecFile],
    tasks: Tasks,
    resources: ResourceOptions,
    placement: Placement,
    environment: Environment,
    staying: Staying,
    arguments: Annotated[
        list[str] | None,
        Argument(metavar="[ARGS]...", help="Arguments for the file's command, best after --."),
    ] = None,
    no_wait: Annotated[
        bool, Option("--no-wait", help="Exit code 2 if it does not start at once.")
    ] = False,
) -> None:
    """Hand in a job or a session from a file; prints its name and id.

    Options take the place of the file's keys; variables and resources stand beside them.
    A name of the file that work of yours still has gets a number: train-2."""
    from muster.core.specs import JobSpec, SessionSpec
    from muster.core.specs.load import kind_of

    if staying.wait and no_wait:
        raise click.BadParameter("give one of --wait and --no-wait")
    spec = read_spec(file, JobSpec, SessionSpec)
    keys = without_nones(tasks.keys() | resources.keys() | placement.keys())
    if keys := keys | environment.overrides():
        spec = with_keys(spec, keys)
    if arguments:
        spec = with_keys(spec, _command_with(spec, arguments))
    kind = next(each for each in kinds.work() if each.name == kind_of(type(spec)))
    if not staying.quiet and (note := kind.note(spec, file)):
        stderr().print(Text(f"note: {plain(note)}"), soft_wrap=True)
    display = staying.display()._replace(no_wait=no_wait)
    is_numbered = tasks.name is None
    raise click.exceptions.Exit(submitted(cluster, spec, display, numbers_name=is_numbered))


def _command_with(spec: "Spec", words: list[str]) -> dict[str, Any]:
    """The keys that give the command of a spec these arguments; a line for the shell has them as
    $1, $2 and so on.

    Raises:
        InvalidSpec: it is a session of several kinds of kernels.
    """
    keys = spec.model_dump(mode="json", exclude_defaults=True)
    if "kernels" not in keys:
        return {"command": _extended(keys["command"], words)}
    if len(keys["kernels"]) > 1:
        expected = "arguments are for one command: leave them out"
        raise InvalidSpec([Problem("kernels", f"{len(keys['kernels'])} of them", expected)])
    (kernel,) = keys["kernels"]
    return {"kernels": [{**kernel, "command": _extended(kernel["command"], words)}]}


def _extended(command: list[str], words: list[str]) -> list[str]:
    is_line = len(command) == 3 and command[:2] == ["/bin/sh", "-c"]
    return [*command, *(["sh"] if is_line else []), *words]
