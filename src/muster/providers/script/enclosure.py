"""The process around a call of an operator's executable, so that nothing of it is left, whatever it
starts and however it ends.

``python -I -S enclosure.py STATUS_FD PARENT_PID TERMINATE_S KILL_S COMMAND...`` starts the command
in a session of its own with the same standard input and outputs. When the command ends, or has run
for KILL_S seconds, or this process gets SIGTERM, or its parent ends, all processes that descend
from the command are killed. Orphans are among them: this process is their reaper. It writes two
lines of JSON to STATUS_FD: the command's process, then how it ended.

It uses the standard library alone, so that it starts within some 20 ms.
"""

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ENDING_S = 2.0
_POLL_S = 0.01
_WAKING = frozenset({signal.SIGCHLD, signal.SIGTERM})
_TO_DEFAULT = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


def main() -> None:
    status_fd, parent = int(sys.argv[1]), int(sys.argv[2])
    terminate_s, kill_s = float(sys.argv[3]), float(sys.argv[4])
    os.set_inheritable(status_fd, False)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAKING)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        _tell(status_fd, {"not_started": os.strerror(ctypes.get_errno())})
        return
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        return
    try:
        pid = os.posix_spawn(
            sys.argv[5],
            sys.argv[5:],
            os.environ,
            setsid=True,
            setsigmask=(),
            setsigdef=_TO_DEFAULT,
        )
    except OSError as error:
        _tell(status_fd, {"not_started": error.strerror})
        return
    _tell(status_fd, {"pid": pid})
    # What only the command and its processes hold open ends with them.
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    code, terminated = _wait(pid, terminate_s, kill_s)
    _tell(status_fd, {"code": code, "terminated": terminated, "left": _end_all()})


def _wait(pid: int, terminate_s: float, kill_s: float) -> tuple[int | None, bool]:
    """The command's exit code, negative for a signal, or None if it did not end in time; and
    whether it was told to end."""
    began_s = time.monotonic()
    terminated = False
    while True:
        for ended, code in _reaped():
            if ended == pid:
                return code, terminated
        run_s = time.monotonic() - began_s
        if run_s >= kill_s:
            return None, terminated
        if run_s >= terminate_s and not terminated:
            terminated = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGTERM)
        wait_s = kill_s - run_s if terminated else terminate_s - run_s
        came = signal.sigtimedwait(_WAKING, max(wait_s, 0.0))
        if came is not None and came.si_signo == signal.SIGTERM:
            return None, terminated


def _reaped() -> Iterator[tuple[int, int]]:
    """Children that have ended, with their exit codes."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            yield pid, os.waitstatus_to_exitcode(status)


def _end_all() -> int:
    """Kill all descendants, again and again until there are none; the answer is how many are left:
    those of another user cannot be killed."""
    until_s = time.monotonic() + _ENDING_S
    while True:
        for pid in _descendants():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for _ in _reaped():
            pass
        left = len(_descendants())
        if not left or time.monotonic() > until_s:
            return left
        time.sleep(_POLL_S)


def _descendants() -> list[int]:
    found: list[int] = []
    stack = [os.getpid()]
    while stack:
        with suppress(OSError):
            parent = stack.pop()
            for thread in os.listdir(f"/proc/{parent}/task"):  # noqa: PTH208
                with open(f"/proc/{parent}/task/{thread}/children", "rb") as children:  # noqa: PTH123
                    below = [int(child) for child in children.read().split()]
                found += below
                stack += below
    return found


def _tell(status_fd: int, status: dict[str, object]) -> None:
    with suppress(BrokenPipeError):
        os.write(status_fd, json.dumps(status).encode() + b"\n")


if __name__ == "__main__":
    main()
