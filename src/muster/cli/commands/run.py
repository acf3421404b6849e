"""``muster run``."""

import os
from pathlib import Path
from typing import Annotated, Any

import click

from muster.cli.completion import complete_group
from muster.cli.exits import ExitCode
from muster.cli.hand_in import Told, submitted
from muster.cli.parameters import Argument, Option, annotated
from muster.cli.placement_options import (
    After,
    Agents,
    Constraints,
    NotBefore,
    Project,
    SingleNode,
    placement_keys,
)
from muster.cli.request import (
    command_of,
    environment,
    pairs,
    unread_input,
    without_nones,
)
from muster.cli.target import Target, on_cluster
from muster.client.workdir import current_directory
from muster.core.errors import InvalidSpec

Amount = str | None


# What follows the command's name is the command's.
@click.command(context_settings={"allow_interspersed_args": False})
@annotated
@on_cluster
def run(
    target: Target,
    command: Annotated[
        list[str],
        Argument(
            metavar="COMMAND...",
            help="Program and arguments, best after --; one with blanks is a line for the shell.",
        ),
    ],
    tasks: Annotated[int | None, Option("--tasks", "-n", help="Run so many of it.")] = None,
    gang: Annotated[
        bool, Option("--gang", help="All tasks start together, with ranks and an address.")
    ] = False,
    cpu: Annotated[
        Amount, Option("--cpu", "-c", metavar="N", help="Processors a task, as 4 or 500m.")
    ] = None,
    memory: Annotated[
        Amount, Option("--memory", "-m", metavar="SIZE", help="Memory a task, as 16GiB.")
    ] = None,
    gpu: Annotated[
        Amount, Option("--gpu", "-g", metavar="N", help="GPUs a task, or a part, as 0.5.")
    ] = None,
    disk: Annotated[Amount, Option("--disk", metavar="SIZE", help="Scratch space a task.")] = None,
    resource: Annotated[
        list[str] | None,
        Option("--resource", "-r", metavar="NAME=AMOUNT", help="Extra; may be repeated."),
    ] = None,
    name: Annotated[Amount, Option("--name", help="Name of the job.")] = None,
    group: Annotated[
        Amount, Option("--group", help="Scaling group.", autocompletion=complete_group)
    ] = None,
    priority: Annotated[
        int | None, Option("--priority", help="0 to 100; higher goes first.")
    ] = None,
    timeout: Annotated[
        Amount, Option("--timeout", metavar="TIME", help="Longest run of a task, as 1h30m.")
    ] = None,
    scheduling_timeout: Annotated[
        Amount, Option("--scheduling-timeout", metavar="TIME", help="Longest wait for room.")
    ] = None,
    retries: Annotated[
        int | None, Option("--retries", help="Retries of a task that fails.")
    ] = None,
    keep_going: Annotated[
        bool, Option("--keep-going", "-k", help="The other tasks run on when one fails.")
    ] = False,
    gpu_model: Annotated[
        str | None, Option("--gpu-model", metavar="MODEL", help="As H100, or H100|B200.")
    ] = None,
    constraint: Constraints = None,
    agent: Agents = None,
    single_node: SingleNode = False,
    after: After = None,
    not_before: NotBefore = None,
    project: Project = None,
    env: Annotated[
        list[str] | None,
        Option("--env", "-e", metavar="KEY[=VALUE]", help="Variable; may be repeated."),
    ] = None,
    clean_env: Annotated[
        bool, Option("--clean-env", help="Do not pass PATH and the like from here.")
    ] = False,
    workdir: Annotated[
        Path | None,
        Option("--workdir", "-w", metavar="DIR", help="Where it runs. [default: here]"),
    ] = None,
    scratch: Annotated[
        bool, Option("--scratch", help="Run in an empty directory of its own.")
    ] = False,
    detach: Annotated[
        bool, Option("--detach", "-d", help="Print its name and id, and leave it alone.")
    ] = False,
    no_wait: Annotated[
        bool,
        Option("--no-wait", help="As --detach, but exit code 2 if it does not start at once."),
    ] = False,
    quiet: Annotated[
        bool,
        Option("--quiet", "-q", help="Only the output, no progress; with -d only the id."),
    ] = False,
    as_json: Annotated[
        bool,
        Option("--json", help="The job as JSON in place of its output, once it has ended."),
    ] = False,
) -> None:
    """Run a command, show its output, end with its exit code."""
    from muster.cli import failures

    if scratch and workdir is not None:
        raise click.UsageError("give one of --workdir and --scratch", click.get_current_context())
    if not (detach or no_wait) and unread_input():
        raise click.UsageError(
            "the command would not get what stands on standard input, its own is empty: let it "
            "read a file, or give </dev/null if it needs nothing",
            click.get_current_context(),
        )
    resources: dict[str, Any] = without_nones(
        {
            "cpu": cpu,
            "memory": memory,
            "gpu": gpu,
            "gpu_model": gpu_model,
            "disk": disk,
            "extra": pairs(resource, "--resource") if resource else None,
        }
    )
    fields = without_nones(
        {
            "kind": "job",
            "command": command_of(command),
            "name": name,
            "group": group,
            "project": project,
            "tasks": tasks,
            "coscheduled": gang or None,
            "resources": resources or None,
            "priority": priority,
            "timeout": timeout,
            "scheduling_timeout": scheduling_timeout,
            "max_retries_failure": retries,
            "keep_going": keep_going or None,
            **placement_keys(constraint, agent, single_node, after, not_before),
            "env": environment(env or [], os.environ, clean=clean_env),
            "workdir": None
            if scratch
            else str(workdir.absolute())
            if workdir
            else current_directory(),
        }
    )
    told = Told(detach=detach, no_wait=no_wait, output=True, quiet=quiet, as_json=as_json)
    try:
        code = submitted(target, fields, told)
    except InvalidSpec as error:  # all of it stood on the command line
        failures.report(error)
        code = ExitCode.USAGE
    raise click.exceptions.Exit(code)
