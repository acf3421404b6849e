"""Spawning the main process of a kernel: files, directory, program, cgroups, spawn.

The supervisor does this for kernels that run as its own user, and a process of another user for
that user's (`spawner_process`): here everything is looked up, entered and made with that user's
rights.
"""

# os and not pathlib: see the docstring of the package.
# ruff: noqa: PTH113

import os
import resource
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from muster.agent.supervisor import clock
from muster.agent.supervisor.cgroups import enter, go_home
from muster.agent.supervisor.failures import (
    CannotExecute,
    CreateFailed,
    create_failure,
    spawn_failure,
)
from muster.agent.supervisor.kernel import CreateFailure, EndReason
from muster.agent.supervisor.protocol import Program
from muster.agent.supervisor.scratch import BadFilePath, write_files

_MAX_PATHS = 1024
_NAMED_DIRECTORIES = 2
# Python ignores these two signals, which would stay ignored across an exec.
_SIGNALS_TO_DEFAULT = (signal.SIGPIPE, signal.SIGXFSZ)


@dataclass(slots=True)  # not frozen, which would cost each kernel 2 us
class Launch:
    """The order for the main process of a kernel."""

    program: Program
    env: dict[str, str]  # the kernel's own; it goes before the program's
    scratch: str  # its directory; "": none


@dataclass(slots=True)
class Spawned:
    """A process that has begun to run its program."""

    pid: int
    born_ticks: tuple[int, int]  # bounds of its start time, as in /proc/<pid>/stat
    started_at: float  # seconds since the epoch


class Spawner:
    """Spawns with the rights of this process. Whatever fails, no process of the attempt is left."""

    def __init__(self, open_files: tuple[int, int] | None) -> None:
        """`open_files` is the limit of open files for kernels, if this process has another."""
        self._open_files = open_files
        self._paths: dict[tuple[str, str], str] = {}
        self._home_fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def spawn(
        self,
        launch: Launch,
        output_fds: Sequence[int],
        entry_fds: Sequence[int],
        home_fds: Sequence[int],
    ) -> Spawned:
        """Spawn a process whose stdout goes to the first of `output_fds` and whose stderr to the
        last, born in the cgroups of `entry_fds`.

        Raises:
            CreateFailed: something of this machine is missing.
            CannotExecute: the command is at fault.
        """
        try:
            try:
                self._enter_directory(launch)
                environment = {**launch.program.env, **launch.env}
                command = launch.program.command
                path = self._find_program(command[0], environment.get("PATH", os.defpath))
                return self._spawn(path, command, environment, output_fds, entry_fds, home_fds)
            finally:
                os.fchdir(self._home_fd)  # a mount there must not be kept busy
        except BadFilePath as error:
            failure: Exception = CreateFailed(
                CreateFailure.BAD_FILE_PATH, f"{error} is not a path inside the scratch directory"
            )
        except (CreateFailed, CannotExecute) as error:
            failure = error
        except OSError as error:
            failure = create_failure(error)
        except ValueError as error:  # a text that cannot be a C string or UTF-8
            failure = CreateFailed(CreateFailure.INTERNAL, str(error))
        raise failure

    def _enter_directory(self, launch: Launch) -> None:
        """
        Raises:
            CreateFailed, BadFilePath, OSError: as they say.
        """
        if launch.program.files:
            write_files(launch.scratch, launch.program.files)
        workdir = launch.program.workdir or launch.scratch
        try:
            os.chdir(workdir)
        except OSError as error:
            raise CreateFailed(
                CreateFailure.WORKDIR_MISSING, f"{workdir}: {error.strerror}"
            ) from None

    def _spawn(
        self,
        path: str,
        command: tuple[str, ...],
        environment: Mapping[str, str],
        output_fds: Sequence[int],
        entry_fds: Sequence[int],
        home_fds: Sequence[int],
    ) -> Spawned:
        pid = 0
        born_after_s = clock.now_s()
        try:
            try:
                enter(entry_fds)
                pid = self._execute(path, command, environment, output_fds)
            finally:
                go_home(home_fds)
        except OSError:
            if pid:  # this process cannot come home, and its child must not run without it
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            raise
        if self._open_files is not None:
            with suppress(OSError):  # the child became another user by its exec, out of reach
                resource.prlimit(pid, resource.RLIMIT_NOFILE, self._open_files)
        return Spawned(pid, (clock.ticks(born_after_s), clock.ticks(clock.now_s())), time.time())

    def _execute(
        self,
        path: str,
        command: tuple[str, ...],
        environment: Mapping[str, str],
        output_fds: Sequence[int],
    ) -> int:
        """
        Raises:
            CreateFailed, CannotExecute: as they say.
        """
        try:
            return os.posix_spawn(
                path,
                command,
                environment,
                file_actions=(
                    (os.POSIX_SPAWN_DUP2, output_fds[0], 1),
                    (os.POSIX_SPAWN_DUP2, output_fds[-1], 2),
                ),
                setsid=True,
                setsigmask=(),
                setsigdef=_SIGNALS_TO_DEFAULT,
            )
        except OSError as error:
            self._paths.clear()  # the program may have been moved since
            raise spawn_failure(error, path) from None

    def _find_program(self, name: str, path: str) -> str:
        """Find a program as a shell would; earlier findings are remembered.

        Raises:
            CannotExecute: there is no such program.
        """
        if "/" in name:
            return name
        found = self._paths.get((name, path))
        if found is not None:
            return found
        denied = None
        for directory in path.split(":"):
            program = f"{directory or '.'}/{name}"
            if not os.path.isfile(program):
                continue
            if os.access(program, os.X_OK):
                if program.startswith("/") and len(self._paths) < _MAX_PATHS:
                    self._paths[name, path] = program
                return program
            denied = program
        if denied is not None:
            raise CannotExecute(
                EndReason.COMMAND_NOT_EXECUTABLE, 126, f"{denied} is not executable"
            )
        detail = f"no {name} in PATH {_shortened(path)}"
        if os.path.isfile(name):
            detail += f"; the one in its working directory is ./{name}"
        raise CannotExecute(EndReason.COMMAND_NOT_FOUND, 127, detail)


def _shortened(path: str) -> str:
    """A PATH, shortened for a sentence."""
    directories = path.split(":")
    if len(directories) <= _NAMED_DIRECTORIES:
        return path
    more = len(directories) - _NAMED_DIRECTORIES
    return f"{':'.join(directories[:_NAMED_DIRECTORIES])} and {more} more"
