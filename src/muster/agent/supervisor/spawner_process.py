"""A process that spawns kernels as one user: the supervisor, which is root, starts and feeds it.

posix_spawn cannot change the user, and a fork in its place costs more than all else that happens to
a short kernel; so a process that has become the user stays, and spawns what it is told. Its user
may signal it and lower its limits (prlimit), and harms nobody else by that; it cannot be traced,
for it is not dumpable. The kernels are its children, so it reaps them and tells how they ended;
when it dies they become the supervisor's.

Each message of the socket is a JSON object or list; those to this process:

    {"release": [scratch, …]}    the kernels of these scratch directories are gone
    {"release": […], "number": n, "launch": {…}, "hierarchies": […]}
                                 and spawn this, with the descriptors of its output and its cgroups

and those from it: `["ready"]` at first, `["spawned", n, pid, low, high, at]`,
`["failed", n, reason, detail]`, `["cannot_execute", n, reason, exit_code, detail]`,
`["ended", pid, wait_status]`.
"""

# os and not pathlib: see the docstring of the package.

import ctypes
import json
import os
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from muster.agent.supervisor.failures import CannotExecute, CreateFailed
from muster.agent.supervisor.kernel import CreateFailure
from muster.agent.supervisor.loop import Loop
from muster.agent.supervisor.protocol import MAX_LINE_BYTES
from muster.agent.supervisor.scratch import ScratchDirectories
from muster.agent.supervisor.signals import SignalFd
from muster.agent.supervisor.spawner import Launch, Spawner

SOCKET_FD = 3
MAX_MESSAGE_BYTES = 2 * MAX_LINE_BYTES  # a line of an order, and what JSON may add to it
MAX_FDS = 8

_MESSAGES_A_TURN = 32
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_SANE_UMASK = 0o022
_MAX_DETAIL_CHARS = 1000


@dataclass(frozen=True, slots=True)
class Settings:
    """Whom to become, and the files through which this process comes home from a cgroup."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    gains_privileges: bool  # whether set-user-id programs, such as sudo, work in kernels
    open_files: tuple[int, int] | None
    homes: dict[str, str]

    @staticmethod
    def parse(text: str) -> "Settings":
        kept = json.loads(text)
        limit = kept["open_files"]
        return Settings(
            kept["uid"],
            kept["gid"],
            tuple(kept["groups"]),
            kept["gains_privileges"],
            None if limit is None else (limit[0], limit[1]),
            kept["homes"],
        )


def main(text: str) -> None:
    """Serve until the supervisor closes the socket."""
    settings = Settings.parse(text)
    home_fds = {
        name: os.open(path, os.O_WRONLY | os.O_CLOEXEC) for name, path in settings.homes.items()
    }
    deaths = SignalFd((signal.SIGCHLD,))
    _become(settings)
    os.chdir("/")
    os.umask(_SANE_UMASK | os.umask(0))
    loop = Loop()
    service = _Service(socket.socket(fileno=SOCKET_FD), home_fds, settings.open_files)
    loop.watch_first(deaths.fd, lambda: service.reap() if deaths.read() else None)
    loop.watch(SOCKET_FD, service.hear)
    with suppress(ConnectionError):
        service.greet()
        while service.wanted:
            loop.turn(60.0)
    service.close()


class _Service:
    def __init__(
        self, peer: socket.socket, home_fds: dict[str, int], open_files: tuple[int, int] | None
    ) -> None:
        self.wanted = True
        peer.set_inheritable(False)
        self._socket = peer
        self._home_fds = home_fds
        self._scratch = ScratchDirectories()
        self._spawner = Spawner(self._scratch, open_files)
        self._buffer = bytearray(MAX_MESSAGE_BYTES)

    def greet(self) -> None:
        """Say that what is asked can be done: this process is the user now."""
        self._say("ready")

    def close(self) -> None:
        self._scratch.remove_spare()

    def hear(self) -> None:
        """
        Raises:
            ConnectionError: the supervisor is gone.
        """
        for _ in range(_MESSAGES_A_TURN):
            try:
                size, fds, _flags, _address = recv_fds(self._socket, self._buffer)
            except BlockingIOError:
                return
            if not size:
                self.wanted = False
                return
            try:
                self._obey(json.loads(self._buffer[:size]), fds)
            finally:
                for fd in fds:
                    os.close(fd)

    def reap(self) -> None:
        """
        Raises:
            ConnectionError: the supervisor is gone.
        """
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._say("ended", *ended)

    def _obey(self, message: dict[str, object], fds: list[int]) -> None:
        for scratch in cast(list[str], message["release"]):
            self._spawner.release(scratch, "")
        match message:
            case {"number": int(number), "launch": dict(fields), "hierarchies": list(hierarchies)}:
                launch = Launch(**{**fields, "command": tuple(fields["command"])})
                self._spawn(number, launch, fds, [self._home_fds[name] for name in hierarchies])

    def _spawn(self, number: int, launch: Launch, fds: list[int], home_fds: list[int]) -> None:
        try:
            if len(fds) != 1 + len(home_fds):
                # Its user has lowered the limit of this process: what ran without the descriptors
                # of its cgroups would run without limits.
                raise CreateFailed(CreateFailure.NO_PROCESSES, "not all descriptors have arrived")
            output_fd, *entry_fds = fds
            spawned = self._spawner.spawn(launch, output_fd, entry_fds, home_fds)
        except CreateFailed as failure:
            self._say("failed", number, failure.reason, failure.detail[:_MAX_DETAIL_CHARS])
        except CannotExecute as failure:
            detail = failure.detail[:_MAX_DETAIL_CHARS]
            self._say("cannot_execute", number, failure.reason, failure.exit_code, detail)
        else:
            self._say("spawned", number, spawned.pid, *spawned.born_ticks, spawned.started_at)

    def _say(self, *words: object) -> None:
        self._socket.send(json.dumps(words).encode())


def recv_fds(peer: socket.socket, buffer: bytearray) -> tuple[int, list[int], int, object]:
    """Receive one message and its descriptors, which the caller has to close.

    Raises:
        OSError: there is none now, or the connection is broken.
    """
    size, ancillary, flags, address = peer.recvmsg_into(
        [buffer],
        socket.CMSG_SPACE(4 * MAX_FDS),
        socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC,
    )
    fds: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds += memoryview(data).cast("i").tolist()
    return size, fds, flags, address


def _become(settings: Settings) -> None:
    """Give up all rights but the user's, for good.

    Raises:
        OSError: this process may not, or it did not work.
    """
    os.setgroups(settings.groups)
    os.setresgid(settings.gid, settings.gid, settings.gid)
    os.setresuid(settings.uid, settings.uid, settings.uid)
    if os.getresuid() != (settings.uid,) * 3 or os.getresgid() != (settings.gid,) * 3:
        raise OSError("it did not become another user")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "its user could trace it")
    if not settings.gains_privileges and libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "kernels could gain privileges")
