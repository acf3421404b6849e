"""The agent's functions that make sure that its supervisor runs, and connect to it."""

import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from muster.agent.supervisor.protocol import SOCKET_NAME
from muster.files import make_directory

LOG_NAME = "supervisor.log"

_ENVIRONMENT = ("PATH", "HOME", "LANG", "USER", "TZ", "TMPDIR")
# An agent may have been started to ignore any of these (nohup, a shell's `&`), and kernels would
# inherit that.
_SIGNALS_TO_DEFAULT = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
_RETRY_S = 1.0  # an old supervisor may just be leaving, and still hold the lock
_POLL_S = 0.005
_LOG_TAIL_BYTES = 2000


def launch(directory: Path, *, timeout_s: float = 10.0) -> None:
    """Start a supervisor on `directory` unless one runs, and wait until it accepts connections.

    It is detached: it has a session of its own and no parent here, writes to `supervisor.log`, and
    has only the environment that kernels inherit by default. (Under systemd, the agent's unit needs
    `KillMode=process` for it to outlive the agent.)

    Raises:
        TimeoutError: it does not accept connections in time; the message holds the end of its log.
        OSError: it cannot be started at all.
    """
    make_directory(directory, is_set=True)
    deadline_s = time.monotonic() + timeout_s
    retry_s = 0.0
    while True:
        if _answers(directory, deadline_s):
            return
        now_s = time.monotonic()
        if now_s > deadline_s:
            log = directory / LOG_NAME
            tail = log.read_bytes()[-_LOG_TAIL_BYTES:] if log.exists() else b""
            raise TimeoutError(
                f"the kernel supervisor on {directory} did not start within {timeout_s:g} s: "
                f"{tail.decode(errors='replace')}"
            )
        if now_s >= retry_s:
            retry_s = now_s + _RETRY_S
            _spawn(directory)
        time.sleep(_POLL_S)


def connect(directory: Path) -> socket.socket:
    """A blocking connection to the supervisor on `directory`; its path may be of any length.

    Raises:
        FileNotFoundError, ConnectionError: there is no supervisor.
    """
    folder = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(f"/proc/self/fd/{folder}/{SOCKET_NAME}")
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(folder)
    return connection


def _answers(directory: Path, deadline_s: float) -> bool:
    """Whether a supervisor answers. A socket that takes a connection is no proof: for a moment
    after the death of a supervisor, a child that it was about to spawn still has its socket
    open."""
    with suppress(OSError), connect(directory) as connection:
        connection.settimeout(max(_POLL_S, deadline_s - time.monotonic()))
        connection.sendall(b"{}\n")  # a complaint about this is an answer too
        return bool(connection.recv(1))
    return False


def _spawn(directory: Path) -> None:
    """
    Raises:
        OSError: it cannot be spawned.
    """
    script = str(Path(__file__).with_name("__main__.py"))
    log = str(directory / LOG_NAME)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        sys.executable,
        (sys.executable, "-I", "-S", script, "--detach", "--dir", str(directory.resolve())),
        {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        file_actions=(
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ),
        setsid=True,
        setsigmask=(),
        setsigdef=_SIGNALS_TO_DEFAULT,
    )
    os.waitpid(pid, 0)  # it forks once and leaves, so that the supervisor is not our child
