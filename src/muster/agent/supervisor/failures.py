"""The failures for which a kernel does not come to run."""

import errno
import os

from muster.agent.supervisor.kernel import CreateFailure, EndReason


class CreateFailed(Exception):
    """The kernel could not be made; the same order may work later or elsewhere."""

    def __init__(self, reason: CreateFailure, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


class CannotExecute(Exception):
    """The kernel's command does not exist or is no program: the task is to blame, with the exit
    code that a shell would give."""

    def __init__(self, reason: EndReason, exit_code: int, detail: str) -> None:
        super().__init__(reason, exit_code, detail)
        self.reason = reason
        self.exit_code = exit_code
        self.detail = detail


def create_failure(error: OSError) -> CreateFailed:
    """The failure of a kernel for which a call failed."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            reason = CreateFailure.DISK_FULL
        case errno.EAGAIN | errno.ENOMEM | errno.EMFILE | errno.ENFILE:
            reason = CreateFailure.NO_PROCESSES
        case _:
            reason = CreateFailure.INTERNAL
    return CreateFailed(reason, str(error))


def spawn_failure(error: OSError, program: str) -> CreateFailed | CannotExecute:
    """The failure of a kernel whose program could not be spawned."""
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            there = os.path.isfile(program)  # noqa: PTH113 - see the docstring of the package
            detail = _without_interpreter(program) if there else f"no file {program}"
            return CannotExecute(EndReason.COMMAND_NOT_FOUND, 127, detail)
        case errno.EAGAIN | errno.ENOMEM | errno.EMFILE | errno.ENFILE:
            return create_failure(error)
        case errno.ENOEXEC if _is_text(_beginning(program)):
            detail = f"{program} has no first line that names its interpreter, such as #!/bin/sh"
            return CannotExecute(EndReason.COMMAND_NOT_EXECUTABLE, 126, detail)
        case _:  # EACCES, ENOEXEC, E2BIG, ELOOP, ETXTBSY, …
            return CannotExecute(
                EndReason.COMMAND_NOT_EXECUTABLE, 126, f"{program}: {os.strerror(error.errno or 0)}"
            )


_LINE_BYTES = 256  # of a first line that Linux reads


def _without_interpreter(program: str) -> str:
    """The fault of a program that is there, and whose interpreter is not."""
    line, _, _ = _beginning(program).partition(b"\n")
    if not line.startswith(b"#!"):
        return f"the interpreter of {program} is missing"
    name = line[2:].strip(b" \t").decode(errors="replace")
    detail = f"{program}: its first line names {name!r}"
    if name.endswith("\r"):
        return f"{detail}: its lines end as on Windows; save it with Unix line ends"
    return f"{detail}, which is not there"


def _beginning(program: str) -> bytes:
    """The first bytes of a file; none if it cannot be read."""
    try:
        descriptor = os.open(program, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, _LINE_BYTES)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _is_text(beginning: bytes) -> bool:
    return bool(beginning) and b"\0" not in beginning and not beginning.startswith(b"#!")
