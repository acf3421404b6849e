"""A process that spawns kernels as one user: the supervisor, which is root, starts and feeds it.

posix_spawn cannot change the user, and a fork in its place costs more than everything else that a
short kernel needs; so a process that has become the user stays, and spawns what it is told. Its
user may signal it and lower its limits (prlimit), which harms nobody else; it cannot be traced,
because it is not dumpable. The kernels are its children, so it reaps them and tells their ends;
when it dies they become the supervisor's children.

The messages on their socket are in `spawn_messages`.
"""

# os and not pathlib: see the docstring of the package.

import ctypes
import gc
import json
import os
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from muster.agent.supervisor import clock
from muster.agent.supervisor.failures import CannotExecute, CreateFailed
from muster.agent.supervisor.kernel import CreateFailure
from muster.agent.supervisor.loop import Loop
from muster.agent.supervisor.process_priority import raise_priority
from muster.agent.supervisor.protocol import Program
from muster.agent.supervisor.signals import SignalFd
from muster.agent.supervisor.spawn_messages import (
    DROPPED,
    ENDED,
    MAX_FACTS,
    MAX_FDS,
    MAX_MESSAGE_BYTES,
    READY,
    SOCKET_FD,
    SPAWNED,
    VERSION,
    pack_fact,
    pack_failure,
    read_message,
)
from muster.agent.supervisor.spawner import Launch, Spawner

_LONGEST_WAIT_S = 60.0
# How long a spawned kernel's fact waits for further facts after a message, above all for its end.
_COMPANY_S = 0.005
_ANCILLARY_BYTES = socket.CMSG_SPACE(4 * MAX_FDS)
_RECEIVE_FLAGS = int(socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)  # enumerations are slow
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_SANE_UMASK = 0o022


@dataclass(frozen=True, slots=True)
class SpawnerSettings:
    """The user to become, and the files through which this process comes home from a cgroup."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    gains_privileges: bool  # whether set-user-id programs, such as sudo, work in kernels
    open_files: tuple[int, int] | None
    homes: dict[str, str]

    @staticmethod
    def parse(text: str) -> "SpawnerSettings":
        kept = json.loads(text)
        limit = kept["open_files"]
        return SpawnerSettings(
            kept["uid"],
            kept["gid"],
            tuple(kept["groups"]),
            kept["gains_privileges"],
            None if limit is None else (limit[0], limit[1]),
            kept["homes"],
        )


def main(text: str) -> None:
    """Serve until the supervisor closes the socket."""
    settings = SpawnerSettings.parse(text)
    home_fds = {
        name: os.open(path, os.O_WRONLY | os.O_CLOEXEC) for name, path in settings.homes.items()
    }
    deaths = SignalFd((signal.SIGCHLD,))
    raise_priority()  # which its user may not
    _become(settings)
    os.chdir("/")
    os.umask(_SANE_UMASK | os.umask(0))
    loop = Loop()
    service = _Service(socket.socket(fileno=SOCKET_FD), home_fds, settings.open_files)
    loop.watch_first(deaths.fd, lambda: service.reap() if deaths.read() else None)
    loop.watch(SOCKET_FD, service.on_ready)
    gc.freeze()
    with suppress(ConnectionError):
        service.greet()
        while service.wanted:
            loop.run_once(service.wait_s())
            service.tell_due()


@dataclass(frozen=True, slots=True)
class _LaunchOrder:
    """A launch, and what goes with it."""

    number: int
    shape: str
    launch: Launch
    hierarchies: tuple[str, ...]
    output_fds: list[int]
    entry_fds: list[int]
    population_fd: int  # of its cgroup; -1: there is none

    def close(self, *, runs: bool) -> None:
        """Close the descriptors, or if it runs those that only its launch needs."""
        for fd in (*self.output_fds, *self.entry_fds):
            os.close(fd)
        if self.population_fd >= 0 and not runs:
            os.close(self.population_fd)


class _Service:
    def __init__(
        self, peer: socket.socket, home_fds: dict[str, int], open_files: tuple[int, int] | None
    ) -> None:
        self.wanted = True
        peer.set_inheritable(False)
        self._socket = peer
        self._home_fds = home_fds
        self._programs: dict[int, Program] = {}
        self._waiting: dict[str, dict[int, _LaunchOrder]] = {}  # by shape and number, oldest first
        self._running: dict[int, tuple[str, int]] = {}  # shape and population_fd by pid
        self._lease_end_s = 0.0
        self._facts: list[bytes] = []  # to be told
        self._due_s = 0.0  # when
        self._spawner = Spawner(open_files)
        self._buffer = memoryview(bytearray(MAX_MESSAGE_BYTES))

    def greet(self) -> None:
        """Tell that this process is the user now and ready."""
        self._socket.send(pack_fact(READY, 0, VERSION))

    def wait_s(self) -> float:
        """For how long no fact is due unless something happens, in seconds."""
        return max(0.0, self._due_s - clock.now_s()) if self._facts else _LONGEST_WAIT_S

    def tell_due(self) -> None:
        """Tell the facts if they are due.

        Raises:
            ConnectionError: the supervisor is gone.
        """
        if self._facts and (now_s := clock.now_s()) >= self._due_s:
            self._due_s = now_s + _COMPANY_S
            self._tell()

    def on_ready(self) -> None:
        """Obey the message that has come.

        Raises:
            ConnectionError: the supervisor is gone.
        """
        self._hear()

    def _hear(self) -> bool:
        """Obey one message; false if there is none.

        Raises:
            ConnectionError: the supervisor is gone.
        """
        try:
            size, fds, _flags, _address = recv_fds(self._socket, self._buffer)
        except BlockingIOError:
            return False
        self.wanted = bool(size)
        if self.wanted:
            self._obey(read_message(self._buffer[:size]), fds)
        return self.wanted

    def reap(self) -> None:
        """Reap kernels that have ended, note the facts, and spawn those that wait for their places.

        Raises:
            ConnectionError: the supervisor is gone.
        """
        ended = []
        with suppress(ChildProcessError):
            while (one := os.waitpid(-1, os.WNOHANG))[0]:
                ended.append(one)
        if ended and self._waiting:  # the supervisor may have dropped some before these ended
            while self._hear():
                pass
        for pid, wait_status in ended:
            heir = self._take_heir(*self._running.pop(pid))
            self._facts.append(pack_fact(ENDED, pid, wait_status, heir.number if heir else 0))
            if heir is not None:
                self._launch(heir)
            if heir is None or len(self._waiting.get(heir.shape, ())) < len(self._running):
                self._due_s = 0.0  # a place is free, or soon will be

    def _take_heir(self, shape: str, population_fd: int) -> _LaunchOrder | None:
        """Remove and return the launch that takes the place of an ended kernel, if there is one and
        the place is free. It is not free while processes of the ended kernel are left, which only
        the supervisor kills."""
        free = False
        if population_fd >= 0:
            with suppress(OSError):
                free = os.pread(population_fd, 32, 0) == b"0\n"
            os.close(population_fd)
        waiting = self._waiting.get(shape)
        if not waiting or not free or not self.wanted or clock.now_s() >= self._lease_end_s:
            return None
        return self._take(shape, next(iter(waiting)))

    def _take(self, shape: str, number: int) -> _LaunchOrder | None:
        """Remove and return a launch that waits; None if it does not, because it was taken."""
        waiting = self._waiting.get(shape, {})
        order = waiting.pop(number, None)
        if order is not None and not waiting:
            del self._waiting[shape]
        return order

    def _obey(self, message: tuple[Any, ...], fds: list[int]) -> None:
        """
        Raises:
            ConnectionError: the supervisor is gone.
        """
        match message:
            case "program", place, *fields:
                self._programs[place] = Program(*fields)
            case "launch", number, place, env, scratch, hierarchies, shape, waits, *more:
                outputs = more[0] if more else 1
                expected = outputs + (1 + len(hierarchies) if hierarchies else 0)
                if len(fds) != expected:
                    for fd in fds:
                        os.close(fd)
                    # Its user has lowered the limit of this process: a kernel without the
                    # descriptors of its cgroups would run without limits.
                    detail = "not all descriptors have arrived"
                    self._fail(number, CreateFailed(CreateFailure.NO_PROCESSES, detail))
                    return
                launch = Launch(self._programs[place], env, scratch)
                population_fd = fds.pop() if hierarchies else -1
                order = _LaunchOrder(
                    number,
                    shape,
                    launch,
                    hierarchies,
                    fds[:outputs],
                    fds[outputs:],
                    population_fd,
                )
                if waits:
                    self._waiting.setdefault(shape, {})[number] = order
                else:
                    self._launch(order)
            case "now", shape, number:
                if (taken := self._take(shape, number)) is not None:
                    self._launch(taken)
            case "drop", shape, number:
                if (taken := self._take(shape, number)) is not None:
                    taken.close(runs=False)
                    self._facts.append(pack_fact(DROPPED, 0, number))
                    self._due_s = 0.0
            case "lease", until_s:
                self._lease_end_s = until_s

    def _launch(self, order: _LaunchOrder) -> None:
        """
        Raises:
            ConnectionError: the supervisor is gone.
        """
        home_fds = [self._home_fds[name] for name in order.hierarchies]
        try:
            spawned = self._spawner.spawn(order.launch, order.output_fds, order.entry_fds, home_fds)
        except (CreateFailed, CannotExecute) as failure:
            order.close(runs=False)
            self._fail(order.number, failure)
        else:
            order.close(runs=True)
            self._running[spawned.pid] = order.shape, order.population_fd
            fact = SPAWNED, spawned.pid, order.number, *spawned.born_ticks, spawned.started_at
            self._facts.append(pack_fact(*fact))

    def _fail(self, number: int, failure: CreateFailed | CannotExecute) -> None:
        """
        Raises:
            ConnectionError: the supervisor is gone.
        """
        self._tell()  # in order: the failure may be that of an heir
        self._socket.send(pack_failure(number, failure))

    def _tell(self) -> None:
        """
        Raises:
            ConnectionError: the supervisor is gone.
        """
        while self._facts:
            self._socket.send(b"".join(self._facts[:MAX_FACTS]))
            del self._facts[:MAX_FACTS]


def recv_fds(peer: socket.socket, buffer: memoryview) -> tuple[int, list[int], int, object]:
    """Receive one message and its descriptors, which the caller has to close.

    Raises:
        OSError: there is none now, or the connection is broken.
    """
    size, ancillary, flags, address = peer.recvmsg_into([buffer], _ANCILLARY_BYTES, _RECEIVE_FLAGS)
    fds: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds += memoryview(data).cast("i").tolist()
    return size, fds, flags, address


def _become(settings: SpawnerSettings) -> None:
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
    # A process that its user has stopped does not notice the end of its socket.
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "it would outlive the supervisor")
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "its user could trace it")
    if not settings.gains_privileges and libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "kernels could gain privileges")
