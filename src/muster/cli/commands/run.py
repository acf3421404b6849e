"""``muster run``."""

from typing import Annotated

import click

from muster.cli.batch_scripts import note_on_options
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.exits import ExitCode
from muster.cli.hand_in import Display, submitted
from muster.cli.job_options import Environment, ResourceOptions, Tasks
from muster.cli.parameters import Argument, Option, annotated, naming_options
from muster.cli.placement_options import Placement
from muster.cli.request import command_of, unread_input, without_nones
from muster.cli.streams import plain, say
from muster.client.workdir import current_directory
from muster.core.errors import InvalidSpec


# Words after the command's name are the command's.
@click.command(context_settings={"allow_interspersed_args": False})
@annotated
@on_cluster
def run(
    cluster: Cluster,
    command: Annotated[
        list[str],
        Argument(
            metavar="COMMAND...",
            help="Program and arguments, best after --; one with blanks is a line for /bin/sh.",
        ),
    ],
    tasks: Tasks,
    resources: ResourceOptions,
    placement: Placement,
    environment: Environment,
    detach: Annotated[
        bool, Option("--detach", "-d", help="Print its name and id, and leave it alone.")
    ] = False,
    no_wait: Annotated[
        bool,
        Option("--no-wait", help="As --detach, but exit code 2 if it does not start at once."),
    ] = False,
    quiet: Annotated[
        bool,
        Option("--quiet", "-q", help="Show the output alone, no progress; with -d only the id."),
    ] = False,
    as_json: Annotated[
        bool,
        Option("--json", help="Print the job as JSON in place of its output, once it has ended."),
    ] = False,
) -> None:
    """Run a command, show its output, end with its exit code."""
    from muster.cli import failures

    context = click.get_current_context()
    left_alone = detach or no_wait
    if not left_alone and unread_input():
        raise click.UsageError(
            "the command would not get what stands on standard input, its own is empty: let it "
            "read a file, or give </dev/null if it needs nothing",
            context,
        )
    keys = tasks.keys() | resources.keys() | placement.keys() | environment.keys()
    fields = without_nones({"kind": "job", "command": command_of(command), **keys})
    display = Display(detach=detach, no_wait=no_wait, output=True, quiet=quiet, as_json=as_json)
    if not quiet and (note := note_on_options(command, current_directory())):
        say(f"note: {plain(note)}")
    try:
        with naming_options():
            code = submitted(cluster, fields, display)
    except InvalidSpec as error:  # the whole spec stood on the command line
        failures.report(error)
        code = ExitCode.USAGE
    if not left_alone and unread_input():
        late = "what came on standard input meanwhile was left there: the command's own is empty"
        say(f"warning: {late}")
    raise click.exceptions.Exit(code)
