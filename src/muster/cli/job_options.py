"""Options of ``muster run`` that become keys of a JobSpec: tasks, resources and environment."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import click

from muster.cli.completion import complete_deployment, complete_group
from muster.cli.parameters import Option
from muster.cli.request import environment, pairs, without_nones
from muster.client.workdir import absolute, current_directory
from muster.core.task_ranges import is_range

Amount = str | None


@dataclass(frozen=True, slots=True)
class Tasks:
    """The number of tasks, their time limits and their retries."""

    tasks: Annotated[
        int | None, Option("--tasks", "-n", help="Run the command as so many tasks.")
    ] = None
    parameter: Annotated[
        list[str] | None,
        Option(
            "--param",
            "-p",
            metavar="NAME=VALUES",
            help="Run a task for each value, as lr=0.1,0.01 or seed=1-5, put in place of {lr}; "
            "may be repeated.",
            field="matrix",
        ),
    ] = None
    points: Annotated[
        str | None,
        Option(
            "--each",
            metavar="FILE",
            help="Run a task for each line, put in place of {line}, or each row of a CSV or JSON "
            "lines file.",
            field="matrix",
        ),
    ] = None
    only: Annotated[
        str | None,
        Option("--only", metavar="TASKS", help="Run only these of the tasks, as 3,17 or 0-100:25."),
    ] = None
    max_running: Annotated[
        int | None, Option("--max-running", metavar="N", help="Run at most so many at a time.")
    ] = None
    gang: Annotated[
        bool,
        Option(
            "--gang",
            help="Start all tasks together, with ranks and an address.",
            field="coscheduled",
        ),
    ] = False
    leader: Annotated[
        int | None,
        Option("--leader", metavar="TASK", help="End the gang once this task of it ends well."),
    ] = None
    name: Annotated[str | None, Option("--name", help="Name the job.")] = None
    group: Annotated[
        str | None,
        Option("--group", help="Run in this scaling group.", autocompletion=complete_group),
    ] = None
    priority: Annotated[
        int | None, Option("--priority", help="Set the priority, 0 to 100; higher goes first.")
    ] = None
    hold: Annotated[
        bool, Option("--hold", help="Hand it in held: it waits for `muster release`.")
    ] = False
    timeout: Annotated[
        str | None, Option("--timeout", metavar="TIME", help="Stop a task after so long, as 1h30m.")
    ] = None
    on_timeout: Annotated[
        str | None,
        Option(
            "--on-timeout",
            metavar="kill|retry",
            help="Kill a task at its time limit, or run it again to go on with what it saved.",
        ),
    ] = None
    scheduling_timeout: Annotated[
        str | None,
        Option(
            "--scheduling-timeout", metavar="TIME", help="Give up after so long a wait for room."
        ),
    ] = None
    retries: Annotated[
        int | None,
        Option("--retries", help="Retry a failing task so often.", field="max_retries_failure"),
    ] = None
    retry_backoff: Annotated[
        str | None,
        Option(
            "--retry-backoff",
            metavar="TIME",
            help="Wait so long before the first retry, and twice as long before each further one.",
        ),
    ] = None
    notify: Annotated[
        list[str] | None,
        Option("--notify", metavar="URL", help="Tell this channel of its end; may be repeated."),
    ] = None
    keep_going: Annotated[
        bool, Option("--keep-going", "-k", help="Let the other tasks run on when one fails.")
    ] = False

    stop_when: Annotated[
        str | None,
        Option(
            "--stop-when",
            metavar="N|first_success",
            help="End the job well once so many of its tasks have succeeded.",
        ),
    ] = None
    recovery: Annotated[
        bool,
        Option(
            "--recovery",
            help="If a task fails, check its machines, heal what is broken, and go on.",
        ),
    ] = False

    def keys(self) -> dict[str, Any]:
        """
        Raises:
            click.BadParameter, click.UsageError: as ``_matrix``.
        """
        return {
            "matrix": self._matrix(),
            "tasks": self.tasks,
            "only": self.only,
            "max_running": self.max_running,
            "coscheduled": self.gang or None,
            "leader": self.leader,
            "name": self.name,
            "group": self.group,
            "priority": self.priority,
            "hold": self.hold or None,
            "timeout": self.timeout,
            "on_timeout": self.on_timeout,
            "scheduling_timeout": self.scheduling_timeout,
            "max_retries_failure": self.retries,
            "retry_backoff": self.retry_backoff,
            "keep_going": self.keep_going or None,
            "stop_when": _number_or_word(self.stop_when),
            "notify": self.notify or None,
            "recovery": self.recovery or None,
        }

    def _matrix(self) -> str | dict[str, Any] | None:
        """The values of parameters, or the file that holds points.

        Raises:
            click.UsageError: there are both.
            click.BadParameter: a parameter has no values.
        """
        if self.points is not None and self.parameter:
            raise click.UsageError("give one of --param and --each")
        if not self.parameter:
            return self.points
        written = pairs(self.parameter, "--param", "a parameter and its values, as lr=0.1,0.01")
        return {name: _values(values) for name, values in written.items()}


def _number_or_word(written: str | None) -> int | str | None:
    return int(written) if written is not None and written.isdecimal() else written


def _values(written: str) -> str | list[str]:
    """The values of a parameter: a range, or those between commas."""
    return written if is_range(written) else written.split(",")


def _of_resources(*flags: str, metavar: str, help: str) -> Option:
    field = "resources." + flags[0].removeprefix("--").replace("-", "_")
    return Option(*flags, metavar=metavar, help=help, field=field)


@dataclass(frozen=True, slots=True)
class ResourceOptions:
    """The resources of each task."""

    cpu: Annotated[
        Amount,
        _of_resources("--cpu", "-c", metavar="N", help="Give each task processors, as 4 or 500m."),
    ] = None
    memory: Annotated[
        Amount,
        _of_resources("--memory", "-m", metavar="SIZE", help="Give each task memory, as 16GiB."),
    ] = None
    gpu: Annotated[
        Amount,
        _of_resources(
            "--gpu", "-g", metavar="N", help="Give each task GPUs, or a part of one, as 0.5."
        ),
    ] = None
    gpu_model: Annotated[
        str | None,
        _of_resources(
            "--gpu-model", metavar="MODEL", help="Take GPUs of this model, as H100, or H100|B200."
        ),
    ] = None
    disk: Annotated[
        Amount, _of_resources("--disk", metavar="SIZE", help="Give each task scratch space.")
    ] = None
    resource: Annotated[
        list[str] | None,
        Option(
            "--resource",
            "-r",
            metavar="NAME=AMOUNT",
            help="Add an extra resource; may be repeated.",
            field="resources.extra",
        ),
    ] = None

    def keys(self) -> dict[str, Any]:
        """
        Raises:
            click.BadParameter: an extra resource is not NAME=AMOUNT.
        """
        resources = without_nones(
            {
                "cpu": self.cpu,
                "memory": self.memory,
                "gpu": self.gpu,
                "gpu_model": self.gpu_model,
                "disk": self.disk,
                "extra": pairs(self.resource, "--resource") if self.resource else None,
            }
        )
        return {"resources": resources or None}


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment and the directory of each task."""

    env: Annotated[
        list[str] | None,
        Option("--env", "-e", metavar="KEY[=VALUE]", help="Set a variable; may be repeated."),
    ] = None
    clean_env: Annotated[
        bool, Option("--clean-env", help="Do not pass PATH and the like from here.")
    ] = False
    workdir: Annotated[
        Path | None,
        Option(
            "--workdir", "-w", metavar="DIR", help="Where it runs: `run` in the current directory."
        ),
    ] = None
    scratch: Annotated[bool, Option("--scratch", help="Run in an empty directory of its own.")] = (
        False
    )
    uses: Annotated[
        list[str] | None,
        Option(
            "--uses",
            metavar="DEPLOYMENT",
            help="Tell where it is reached, as MUSTER_URL_NAME; may be repeated.",
            autocompletion=complete_deployment,
        ),
    ] = None
    stderr: Annotated[
        str | None,
        Option(
            "--stderr",
            metavar="PLACE",
            help="Keep stderr apart, so that it can be shown alone; or together with stdout.",
        ),
    ] = None

    def keys(self) -> dict[str, Any]:
        """The keys of a job that has no others: without a directory it runs in the current one.

        Raises:
            click.UsageError, click.BadParameter: as ``overrides``.
        """
        found = self.overrides()
        return found if "workdir" in found else found | {"workdir": current_directory()}

    def overrides(self) -> dict[str, Any]:
        """The keys that the options stand for; a ``workdir`` of None is the scratch directory.

        Raises:
            click.UsageError: both a directory and none are asked for.
            click.BadParameter: a variable has no value, not even in the caller's environment.
        """
        if self.scratch and self.workdir is not None:
            raise click.UsageError("give one of --workdir and --scratch")
        found: dict[str, Any] = {}
        if env := environment(self.env or [], os.environ):
            found["env"] = env
        if self.clean_env:
            found["environment"] = "clean"
        if self.scratch or self.workdir is not None:
            found["workdir"] = None if self.workdir is None else absolute(str(self.workdir))
        if self.uses:
            found["uses"] = self.uses
        if self.stderr is not None:
            found["stderr"] = self.stderr
        return found
