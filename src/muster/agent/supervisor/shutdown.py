"""Ends a supervisor and all of its kernels, to take a machine's work down."""

import contextlib
import json
import os
import time
from pathlib import Path

from muster.agent.supervisor.launch import connect, launch
from muster.agent.supervisor.lock_file import is_held
from muster.agent.supervisor.protocol import SOCKET_NAME

LOCK_NAME = "supervisor.lock"
_POLL_S = 0.02
_ANSWER_TIMEOUT_S = 5.0


def shut_down(directory: Path, *, grace_s: float, timeout_s: float) -> int:
    """Stop the kernels of the supervisor on `directory` and wait until it has gone; the answer is
    how many kernels ran.

    Their ends stay in its journal, for the next agent to report. Where it has died another is
    started, which ends what its predecessor left; where one has ended in order the answer is 0.

    Raises:
        TimeoutError: it is still there after `timeout_s`.
        PermissionError: it is another user's.
        OSError: it has died, and another cannot be started.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            connection = connect(directory)
            break
        except PermissionError:
            raise
        except OSError:
            held = is_held(directory / LOCK_NAME)
            if not held and not os.path.lexists(directory / SOCKET_NAME):
                return 0
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"the supervisor of {directory} does not listen") from None
            if not held:
                launch(directory, timeout_s=left_s)  # it takes over
        time.sleep(_POLL_S)  # the supervisor is just starting, or has just ended
    ran = 0
    with connection, contextlib.suppress(OSError, ValueError, KeyError):
        connection.settimeout(_ANSWER_TIMEOUT_S)
        for op in ({"op": "attach"}, {"op": "shutdown", "grace_s": grace_s}):
            connection.sendall(json.dumps(op).encode() + b"\n")
        with connection.makefile("rb") as lines:
            state = json.loads(lines.readline())["state"]
        ran = sum(kernel["status"] in ("running", "stopping") for kernel in state["kernels"])
    # The connection is closed now, so the supervisor need not wait for anybody to hear its reports.
    while is_held(directory / LOCK_NAME):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the kernels of {directory} did not end within {timeout_s:g} s")
        time.sleep(_POLL_S)
    return ran
