"""One call of an operator's executable: bounded in time and in what it may say, and nothing of it
is left afterwards."""

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.core.text import printable

MAX_ANSWER_BYTES = 4 << 20
"""Of standard output: more than the machines of the largest pool take."""
MAX_ERRORS_BYTES = 16 << 20
"""Of standard error, of which only the end is kept; whatever writes more is ended."""
GRACE_S = 2.0
"""Seconds between SIGTERM and SIGKILL, at the end of the call's time."""

_TAIL_BYTES = 1 << 16
_ENDING_S = 4.0  # what the process around the executable takes to end all that is left
_READ_BYTES = 1 << 16
_LINE = 200
_HIDDEN = "[secret]"
_INHERITED = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
"""Variables of the controller that the executable gets."""
_ENCLOSURE = str(Path(__file__).with_name("enclosure.py"))


class NotCalled(Exception):
    """The executable was not started; the text says why."""


class CallFailed(Exception):
    """The executable was started, and what it did is not known; the text says how it failed."""


@dataclass(frozen=True, slots=True)
class ScriptAnswer:
    """The answer of an executable that has ended.

    Args:
        code: its exit code; negative for a signal.
        output: all of its standard output.
        last_line: of its standard error, of a length that can be shown.
    """

    code: int
    output: bytes = field(repr=False)
    last_line: str


@dataclass(slots=True)
class _Heard:
    """The text that was read of the streams of a call so far."""

    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    errors_bytes: int = 0
    status: bytearray = field(default_factory=bytearray)

    def last_line(self, secret: str) -> str:
        text = bytes(self.errors).decode(errors="replace")
        if self.errors_bytes > len(self.errors):
            text = text.partition("\n")[2]  # half a line may have half of a secret
        if secret:
            text = text.replace(secret, _HIDDEN)
        said = next((line for line in reversed(text.splitlines()) if line.strip()), "")
        return printable(" ".join(said.split()))[:_LINE]


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The variables of the executable: few of the controller's, and those that are given."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ} | {**given}


def found(program: str, variables: Mapping[str, str]) -> str:
    """The path of a program.

    Raises:
        NotCalled: it is not there, or may not be executed.
    """
    path = shutil.which(program, path=variables.get("PATH"))
    if path is not None:
        return path
    if "/" in program and Path(program).is_file():
        raise NotCalled(f"{program} is not executable: chmod +x it")
    where = "" if "/" in program else " on the controller's PATH"
    raise NotCalled(f"{program} is not there{where}")


def call(
    command: Sequence[str],
    request: bytes,
    variables: Mapping[str, str],
    directory: Path,
    timeout_s: float,
    secret: str = "",
) -> ScriptAnswer:
    """Start the command with ``request`` on its standard input, and wait for its end.

    Whatever it leaves running is killed, and everything is once ``timeout_s`` is over.

    Args:
        directory: its working directory.
        secret: of the request; it is left out of all that the answer or an error tells.

    Raises:
        NotCalled: it cannot be started.
        CallFailed: it did not end in time, or said too much.
    """
    program = found(command[0], variables)
    deadline_s = time.monotonic() + timeout_s
    terminate_s = max(timeout_s - GRACE_S, timeout_s / 2)
    # A file in memory: no pipe that the executable may leave full, nor a file that others may read.
    standard_input = os.memfd_create("request")
    status_end, status_fd = os.pipe()
    process: subprocess.Popen[bytes] | None = None
    try:
        os.write(standard_input, request)
        os.lseek(standard_input, 0, os.SEEK_SET)
        limits = [str(status_fd), str(os.getpid()), str(terminate_s), str(timeout_s)]
        enclosed = [sys.executable, "-I", "-S", _ENCLOSURE, *limits, program, *command[1:]]
        process = subprocess.Popen(
            enclosed,
            stdin=standard_input,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(status_fd,),
            env=dict(variables),
            cwd=directory,
            start_new_session=True,
        )
    except OSError as error:
        raise NotCalled(f"{program} cannot be started: {error.strerror}") from None
    finally:
        os.close(standard_input)
        os.close(status_fd)
        if process is None:
            os.close(status_end)
    heard = _Heard()
    try:
        too_much = _listen(process, status_end, heard, deadline_s + _ENDING_S)
    finally:
        _end(process, heard)
        os.close(status_end)
    return _judge(heard, too_much, timeout_s, secret)


def _listen(
    process: subprocess.Popen[bytes], status_end: int, heard: _Heard, until_s: float
) -> str:
    """Read all that is said until the call is over; the answer is what was too much of it."""
    assert process.stdout is not None
    assert process.stderr is not None
    too_much = ""
    with selectors.DefaultSelector() as selector:
        for stream in (process.stdout.fileno(), process.stderr.fileno(), status_end):
            os.set_blocking(stream, False)
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map() and (left_s := until_s - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                try:
                    data = os.read(key.fd, _READ_BYTES)
                except BlockingIOError:
                    continue
                if not data:
                    selector.unregister(key.fd)
                elif key.fd == status_end:
                    heard.status += data
                elif too_much:
                    pass  # it is being ended
                elif key.fd == process.stdout.fileno():
                    heard.output += data
                    if len(heard.output) > MAX_ANSWER_BYTES:
                        too_much = f"answers with more than {MAX_ANSWER_BYTES >> 20} MiB"
                        process.terminate()
                else:
                    heard.errors_bytes += len(data)
                    heard.errors += data
                    del heard.errors[:-_TAIL_BYTES]  # what comes before is told to nobody
                    if heard.errors_bytes > MAX_ERRORS_BYTES:
                        too_much = f"writes more than {MAX_ERRORS_BYTES >> 20} MiB of errors"
                        process.terminate()
            if _status(heard).keys() & {"left", "not_started"}:
                # All that could be ended has ended: only what is in the pipes is left to read.
                until_s = min(until_s, time.monotonic() + 1.0)
    return too_much


def _end(process: subprocess.Popen[bytes], heard: _Heard) -> None:
    """Make sure that the process around the executable is gone, as it mostly is by itself."""
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    try:
        process.wait(1.0 if "left" in _status(heard) else 0.1)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    pid = _status(heard).get("pid")
    if isinstance(pid, int) and "left" not in _status(heard):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def _judge(heard: _Heard, too_much: str, timeout_s: float, secret: str) -> ScriptAnswer:
    """
    Raises:
        NotCalled, CallFailed: as ``call``.
    """
    status = _status(heard)
    if "not_started" in status:
        raise NotCalled(f"it cannot be started: {status['not_started']}")
    last_line = heard.last_line(secret)
    words = f"; its last words: {last_line}" if last_line else ""
    if too_much:
        raise CallFailed(f"it {too_much}{words}")
    code = status.get("code")
    if not isinstance(code, int) or (code < 0 and status["terminated"]):
        raise CallFailed(f"it did not end within {timeout_s:g} s{words}")
    if status.get("left"):
        raise CallFailed(f"it left processes that cannot be ended{words}")
    output = bytes(heard.output)
    if secret:
        output = output.replace(secret.encode(), _HIDDEN.encode())
    return ScriptAnswer(code, output, last_line)


def _status(heard: _Heard) -> dict[str, Any]:
    """The lines of the process around the executable, as one."""
    told: dict[str, Any] = {}
    for line in bytes(heard.status).split(b"\n")[:-1]:
        told |= json.loads(line)
    return told
