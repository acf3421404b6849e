"""Ends a supervisor and all of its kernels, to take a machine's work down."""

import contextlib
import json
import math
import os
import socket
import time
from pathlib import Path

from muster.agent.supervisor.launch import connect, launch
from muster.agent.supervisor.lock_file import is_held
from muster.agent.supervisor.protocol import SOCKET_NAME

LOCK_NAME = "supervisor.lock"
_POLL_S = 0.02
_ANSWER_TIMEOUT_S = 5.0
_ASK_AGAIN_S = 5.0


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
    asked_s, ran = -math.inf, 0
    while True:
        now_s = time.monotonic()
        held = is_held(directory / LOCK_NAME)
        if not held and not os.path.lexists(directory / SOCKET_NAME):
            return ran
        left_s = deadline_s - now_s
        if left_s <= 0:
            what = "supervisor does not listen" if asked_s < 0 else "kernels did not end"
            raise TimeoutError(f"{directory}: its {what} within {timeout_s:g} s")
        if not held:
            launch(directory, timeout_s=left_s)  # it takes over
        elif now_s < asked_s + _ASK_AGAIN_S:
            time.sleep(_POLL_S)
            continue
        try:
            connection = connect(directory)
        except PermissionError:
            raise
        except OSError:  # it is just starting, or has just ended
            time.sleep(_POLL_S)
            continue
        asked_s = time.monotonic()
        # It may be that only the answer is lost, or that an agent came between and the order is;
        # another one changes nothing of what the first began.
        with connection, contextlib.suppress(OSError, ValueError, KeyError):
            ran = max(ran, _ask(connection, grace_s))


def _ask(connection: socket.socket, grace_s: float) -> int:
    """Order a supervisor to end with its kernels; the answer is how many are there.

    The connection is to be closed then, so that the supervisor need not wait for anybody to hear
    its reports.

    Raises:
        OSError: it does not answer.
        ValueError: its answer is no state.
        KeyError: as for ValueError.
    """
    connection.settimeout(_ANSWER_TIMEOUT_S)
    ops = ({"op": "attach"}, {"op": "shutdown", "grace_s": grace_s})
    # At once: it reads no further from one that has gone while it was being answered.
    connection.sendall(b"".join(json.dumps(op).encode() + b"\n" for op in ops))
    with connection.makefile("rb") as lines:
        state = json.loads(lines.readline())["state"]
    return sum(kernel["status"] in ("running", "stopping") for kernel in state["kernels"])
