"""Running one check as a process: bounded in time and in what it may print, without a shell."""

import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from muster.core.health.check_run import CheckRun, Ending
from muster.core.health.verdict import MAX_TOLD, bounded

KEPT_BYTES = 64 << 10
"""Bytes of standard output that are kept, unless a command says otherwise."""
GRACE_S = 5.0
"""Seconds between SIGTERM and SIGKILL."""
KILLED_S = 5.0
"""Seconds after SIGKILL after which a process counts as one that cannot be killed: it hangs in the
kernel, as when a driver does not answer."""
DRAIN_S = 0.5
"""Seconds for which output is read after the program has ended, while a process that it left still
holds it open."""

_ERRORS_BYTES = 4 << 10
_READ_BYTES = 1 << 20
_INHERITED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
)
"""Variables of the agent that a check gets."""


@dataclass(frozen=True, slots=True)
class Command:
    """A program to be run.

    Args:
        arguments: the program, and what it is given.
        standard_input: all that it can read.
        environment: variables besides the few of the agent that it gets.
        kept_bytes: of its standard output.
    """

    arguments: tuple[str, ...]
    standard_input: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict)
    kept_bytes: int = KEPT_BYTES


@dataclass(slots=True)
class _Printed:
    """The output of a process so far."""

    kept_bytes: int
    output: bytearray = field(default_factory=bytearray)
    dropped_bytes: int = 0
    errors: bytearray = field(default_factory=bytearray)

    def add_output(self, data: bytes) -> None:
        room = self.kept_bytes - len(self.output)
        self.output += data[:room]
        self.dropped_bytes += max(len(data) - room, 0)

    def add_errors(self, data: bytes) -> None:
        self.errors += data
        del self.errors[:-_ERRORS_BYTES]

    def last_words(self) -> str:
        lines = bytes(self.errors).decode(errors="replace").splitlines()
        words = " ".join(line.strip() for line in lines[-4:])
        return bounded(words[-MAX_TOLD:], MAX_TOLD)


def run(
    command: Command,
    limit_s: float,
    *,
    grace_s: float = GRACE_S,
    killed_s: float = KILLED_S,
    send: Callable[[int, int], None] = os.killpg,
) -> CheckRun:
    """Run a command to its end. It leads a process group of its own, and nothing of that group is
    left afterwards, unless it cannot be killed. The call blocks for ``limit_s`` + ``grace_s`` +
    ``killed_s`` seconds at most.

    Args:
        send: sends a signal to a process group.
    """
    variables = {**few_variables(), **command.environment}
    program = shutil.which(command.arguments[0], path=variables.get("PATH"))
    if program is None:
        return CheckRun(Ending.NOT_STARTED, why=f"{command.arguments[0]} is not installed")
    began_s = time.monotonic()
    try:
        process, pidfd = _started(program, command, variables)
    except OSError as error:
        return CheckRun(Ending.NOT_STARTED, why=error.strerror or str(error))
    printed = _Printed(command.kept_bytes)
    try:
        ending = _attended(
            process, pidfd, printed, _Limits(began_s, limit_s, grace_s, killed_s), send
        )
    finally:
        os.close(pidfd)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    if ending is Ending.NOT_ENDED:
        # It is waited for elsewhere, so that it becomes no zombie once it can end.
        threading.Thread(target=process.wait, name="unkillable check", daemon=True).start()
        code = 0
    else:
        code = process.wait()
        if ending is Ending.EXITED and code < 0:
            ending = Ending.SIGNALLED
    return CheckRun(
        ending,
        abs(code),
        bytes(printed.output),
        printed.dropped_bytes,
        printed.last_words(),
        time.monotonic() - began_s,
    )


def few_variables() -> dict[str, str]:
    """The variables of the agent that its checks get."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}


@dataclass(frozen=True, slots=True)
class _Limits:
    began_s: float
    limit_s: float
    grace_s: float
    killed_s: float


def _started(
    program: str, command: Command, variables: Mapping[str, str]
) -> tuple["subprocess.Popen[bytes]", int]:
    """The process and a descriptor of it.

    Raises:
        OSError: it cannot be started.
    """
    # A file in memory: no pipe that the program may leave full, nor a file that others may read.
    standard_input = os.memfd_create("check")
    try:
        os.write(standard_input, command.standard_input)
        os.lseek(standard_input, 0, os.SEEK_SET)
        process = subprocess.Popen(
            [command.arguments[0], *command.arguments[1:]],
            executable=program,
            stdin=standard_input,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(variables),
            cwd="/",
            start_new_session=True,
            pipesize=_READ_BYTES,
        )
    finally:
        os.close(standard_input)
    try:
        return process, os.pidfd_open(process.pid)
    except OSError:
        process.kill()
        process.communicate()
        raise


def _attended(
    process: "subprocess.Popen[bytes]",
    pidfd: int,
    printed: _Printed,
    limits: _Limits,
    send: Callable[[int, int], None],
) -> Ending:
    """Read what a process prints until it has ended, and end it when its time is over. The process
    itself is not waited for here: until it is, no other group can get the number of its own."""
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = process.stdout.fileno(), process.stderr.fileno()
    signals = [
        (limits.began_s + limits.limit_s, signal.SIGTERM),
        (limits.began_s + limits.limit_s + limits.grace_s, signal.SIGKILL),
    ]
    give_up_s = signals[-1][0] + limits.killed_s
    late = False
    until_s = signals[0][0]
    with selectors.DefaultSelector() as selector:
        for descriptor in (output, errors):
            os.set_blocking(descriptor, False)
        for descriptor in (output, errors, pidfd):
            selector.register(descriptor, selectors.EVENT_READ)
        running = True
        while selector.get_map():
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                if not running:
                    break  # something that it left holds its output open
                if not signals:
                    return Ending.NOT_ENDED
                late = True
                _send(send, process.pid, signals.pop(0)[1])
                until_s = signals[0][0] if signals else give_up_s
                continue
            for key, _ in selector.select(left_s):
                if key.fd == pidfd:
                    running = False
                    until_s = time.monotonic() + DRAIN_S
                    selector.unregister(pidfd)
                elif not _read(
                    key.fd, printed.add_output if key.fd == output else printed.add_errors
                ):
                    selector.unregister(key.fd)
    _send(send, process.pid, signal.SIGKILL)  # whatever it left of its group
    return Ending.TIMED_OUT if late else Ending.EXITED


def _read(descriptor: int, add: Callable[[bytes], None]) -> bool:
    """Read once; the answer is whether there may be more."""
    try:
        data = os.read(descriptor, _READ_BYTES)
    except BlockingIOError:
        return True
    except OSError:
        return False
    add(data)
    return bool(data)


def _send(send: Callable[[int, int], None], group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        send(group, number)
