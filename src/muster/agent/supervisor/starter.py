"""Starting the main process of a kernel: directory, files, environment, pipe, limits, spawn."""

# os and not pathlib: see the docstring of the package.
# ruff: noqa: PTH113

import errno
import os
import resource
import signal
import time
from collections.abc import Mapping
from contextlib import suppress

from muster.agent.supervisor import clock, process_tree
from muster.agent.supervisor.cgroups import Cgroups, Limits, LimitsKind
from muster.agent.supervisor.kernel import CreateFailure, EndReason, Kernel
from muster.agent.supervisor.output import Outputs
from muster.agent.supervisor.protocol import KernelOrder, Template, file_name
from muster.agent.supervisor.scratch import BadFilePath, ScratchDirectories, write_files

_INHERITED = ("PATH", "HOME", "LANG", "USER", "TZ", "TMPDIR")
_MAX_PROGRAMS = 1024
_NAMED_DIRECTORIES = 2
_MAX_OPEN_FILES = 1 << 16
# Python ignores these two, and what is ignored stays so across an exec.
_SIGNALS_TO_DEFAULT = (signal.SIGPIPE, signal.SIGXFSZ)


class CreateFailed(Exception):
    """The kernel could not be made; the same order may work later or elsewhere."""

    def __init__(self, reason: CreateFailure, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


class CannotExecute(Exception):
    """The kernel's command is not there or is no program: its own fault, as exit codes say."""

    def __init__(self, reason: EndReason, exit_code: int, detail: str) -> None:
        super().__init__(reason, exit_code, detail)
        self.reason = reason
        self.exit_code = exit_code
        self.detail = detail


def default_environment(own: Mapping[str, str]) -> dict[str, str]:
    """What a kernel's environment holds if its order does not say otherwise."""
    inherited = {name: own[name] for name in _INHERITED if name in own}
    return {"PATH": os.defpath, "PYTHONUNBUFFERED": "1", **inherited}


class Starter:
    """Makes kernels out of orders. Whatever fails, nothing of the attempt is left behind."""

    def __init__(
        self,
        directory: str,
        outputs: Outputs,
        scratch: ScratchDirectories,
        cgroups: Cgroups | None,
    ) -> None:
        self.limits_kind = LimitsKind.NONE if cgroups is None else cgroups.kind
        self._directory = directory
        self._directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        null_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(null_fd, 0)  # inherited by every kernel as its stdin
        os.close(null_fd)
        self._outputs = outputs
        self._scratch = scratch
        self._cgroups = cgroups
        self._programs: dict[tuple[str, str], str] = {}
        self._open_files_before = _raise_open_files()

    def start(self, kernel: Kernel, order: KernelOrder) -> None:
        """Spawn the kernel's main process.

        Raises:
            CreateFailed: something of this machine is missing.
            CannotExecute: the command is at fault.
        """
        try:
            self._prepare(kernel, order.template)
            self._spawn(kernel, order)
            os.fchdir(self._directory_fd)  # what was mounted there must not be kept busy
            return
        except BadFilePath as error:
            failure: Exception = CreateFailed(
                CreateFailure.BAD_FILE_PATH, f"{error} is not a path inside the scratch directory"
            )
        except (CreateFailed, CannotExecute) as error:
            failure = error
        except OSError as error:
            failure = CreateFailed(_create_failure(error), str(error))
        except ValueError as error:  # what cannot be a C string or UTF-8
            failure = CreateFailed(CreateFailure.INTERNAL, str(error))
        os.fchdir(self._directory_fd)
        self.clean_up(kernel)
        raise failure

    def clean_up(self, kernel: Kernel) -> int:
        """Give back what a kernel had, once none of its processes is left.

        Returns how many bytes of its output were dropped.
        """
        dropped_bytes = 0
        if kernel.output is not None:
            kernel.output.finish()
            dropped_bytes = kernel.output.dropped_bytes
            kernel.output = None
        if kernel.slot is not None and self._cgroups is not None:
            self._cgroups.release(kernel.slot)
            kernel.slot = None
        if kernel.scratch is not None:
            self._scratch.release(kernel.scratch)
            kernel.scratch = None
        return dropped_bytes

    def _prepare(self, kernel: Kernel, template: Template) -> None:
        """Directory and files; the working directory of this process becomes the kernel's.

        Raises:
            CreateFailed, BadFilePath, OSError: as they say.
        """
        name = file_name(kernel.key)
        if template.workdir is None or template.files:
            kernel.scratch = self._scratch.create(name)
            write_files(kernel.scratch, template.files)
        workdir = template.workdir or kernel.scratch or "/"
        try:
            os.chdir(workdir)
        except OSError as error:
            raise CreateFailed(CreateFailure.WORKDIR_MISSING, str(error)) from None
        kernel.output = self._outputs.open(name, template.log_max_bytes)
        if self._cgroups is not None and (template.cpu_milli or template.memory_bytes):
            limits = Limits(template.cpu_milli, template.memory_bytes)
            kernel.slot = self._cgroups.acquire(limits)

    def _environment(self, kernel: Kernel, order: KernelOrder) -> dict[str, str]:
        kernel_id, generation = kernel.key
        environment = {
            **order.template.env,
            **order.env,
            process_tree.ID_VARIABLE: kernel_id,
            process_tree.GENERATION_VARIABLE: str(generation),
            process_tree.SUPERVISOR_VARIABLE: self._directory,
        }
        if kernel.scratch is not None:
            environment["MUSTER_SCRATCH"] = kernel.scratch
        # Here and not in the order, for an heir learns its devices only now. Without any, it must
        # not see those of others; their numbers are NVML's, which CUDA counts otherwise by default.
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, kernel.devices))
        if kernel.devices:
            environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        return environment

    def _spawn(self, kernel: Kernel, order: KernelOrder) -> None:
        assert kernel.output is not None
        environment = self._environment(kernel, order)
        command = order.template.command
        program = self._find_program(command[0], environment.get("PATH", os.defpath))
        write_fd = kernel.output.write_fd
        born_after_s = clock.now_s()
        try:
            kernel.pid = os.posix_spawn(
                program,
                command,
                environment,
                file_actions=(
                    (os.POSIX_SPAWN_DUP2, write_fd, 1),
                    (os.POSIX_SPAWN_DUP2, write_fd, 2),
                ),
                setsid=True,
                setsigmask=(),
                setsigdef=_SIGNALS_TO_DEFAULT,
            )
        except OSError as error:
            self._programs.clear()  # it may have been moved since
            raise _spawn_failure(error, program) from None
        kernel.born_ticks = clock.ticks(born_after_s), clock.ticks(clock.now_s())
        kernel.started_at = time.time()
        if self._open_files_before is not None:
            with suppress(OSError):  # it became another user by its exec: out of reach
                resource.prlimit(kernel.pid, resource.RLIMIT_NOFILE, self._open_files_before)
        if kernel.slot is not None:
            try:
                kernel.slot.place(kernel.pid)
            except OSError:
                os.killpg(kernel.pid, signal.SIGKILL)  # what was promised limits runs with them
                os.waitpid(kernel.pid, 0)
                raise

    def _find_program(self, name: str, path: str) -> str:
        """As a shell would, with what was found before remembered.

        Raises:
            CannotExecute: there is no such program.
        """
        if "/" in name:
            return name
        found = self._programs.get((name, path))
        if found is not None:
            return found
        denied = None
        for directory in path.split(":"):
            program = f"{directory or '.'}/{name}"
            if not os.path.isfile(program):
                continue
            if os.access(program, os.X_OK):
                if program.startswith("/") and len(self._programs) < _MAX_PROGRAMS:
                    self._programs[name, path] = program
                return program
            denied = program
        if denied is not None:
            raise CannotExecute(
                EndReason.COMMAND_NOT_EXECUTABLE, 126, f"{denied} is not executable"
            )
        raise CannotExecute(
            EndReason.COMMAND_NOT_FOUND, 127, f"no {name} in PATH {_shortened(path)}"
        )


def _shortened(path: str) -> str:
    """A PATH as a sentence has room for it."""
    directories = path.split(":")
    if len(directories) <= _NAMED_DIRECTORIES:
        return path
    more = len(directories) - _NAMED_DIRECTORIES
    return f"{':'.join(directories[:_NAMED_DIRECTORIES])} and {more} more"


def _raise_open_files() -> tuple[int, int] | None:
    """Allow this process more descriptors; returns what its kernels shall have, None if the same.

    Programs that use select() must not inherit more than the usual 1,024 by accident.
    """
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = before
    wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return before


def _create_failure(error: OSError) -> CreateFailure:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return CreateFailure.DISK_FULL
        case errno.EAGAIN | errno.ENOMEM:
            return CreateFailure.NO_PROCESSES
        case _:
            return CreateFailure.INTERNAL


def _spawn_failure(error: OSError, program: str) -> CreateFailed | CannotExecute:
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            there = os.path.isfile(program)
            detail = f"the interpreter of {program} is missing" if there else f"no file {program}"
            return CannotExecute(EndReason.COMMAND_NOT_FOUND, 127, detail)
        case errno.EAGAIN | errno.ENOMEM | errno.EMFILE | errno.ENFILE:
            return CreateFailed(_create_failure(error), str(error))
        case _:  # EACCES, ENOEXEC, E2BIG, ELOOP, ETXTBSY, …
            return CannotExecute(
                EndReason.COMMAND_NOT_EXECUTABLE, 126, f"{program}: {os.strerror(error.errno or 0)}"
            )
