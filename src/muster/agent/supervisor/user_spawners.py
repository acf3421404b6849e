"""The supervisor's end of its spawner processes: one for each user whose kernels it holds."""

import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Protocol

from muster.agent.supervisor import clock
from muster.agent.supervisor.failures import CannotExecute, CreateFailed, create_failure
from muster.agent.supervisor.kernel import CreateFailure, Kernel
from muster.agent.supervisor.loop import READABLE, WRITABLE, Loop
from muster.agent.supervisor.process_tree import read_stat
from muster.agent.supervisor.protocol import Account, Program, encode
from muster.agent.supervisor.spawn_messages import (
    ENDED,
    MAX_ANSWER_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_PLACES,
    READY,
    SOCKET_FD,
    SPAWNED,
    VERSION,
    Garbled,
    facts,
    failure_of,
    is_failure,
    launch_message,
    program_message,
)
from muster.agent.supervisor.spawner import Launch, Spawned

MAX_USERS = 128

_IDLE_S = 60.0
_LOOK_PERIOD_S = 5.0
_KEPT_PROGRAM_BYTES = 64 << 10
_SO_SNDBUFFORCE = 32
_SNDBUF_OVERHEAD_BYTES = 64  # of the buffer, a message may take all but 32


class SpawnListener(Protocol):
    """The listener for kernels that another process was told to spawn, or has spawned."""

    def spawned(self, kernel: Kernel, spawned: Spawned) -> None:
        """The kernel runs."""

    def not_spawned(self, kernel: Kernel, failure: CreateFailed | CannotExecute) -> None:
        """No process of the kernel runs."""

    def main_ended(self, pid: int, wait_status: int) -> None:
        """A main process was reaped."""

    def spawner_ended(self, kernels: Collection[Kernel]) -> None:
        """Nobody will tell any more how these kernels ended, or whether they were ever spawned."""

    def helper_spawned(self, pid: int) -> None:
        """A process of the supervisor's own is to be reaped."""


class UserSpawners:
    """The spawner processes by user; they are started when needed, and end when idle."""

    def __init__(
        self, loop: Loop, homes: Mapping[str, str], open_files: tuple[int, int] | None
    ) -> None:
        """`homes` are the files through which a process comes home, one for each hierarchy of
        cgroups."""
        self.loop = loop
        self.listener: SpawnListener | None = None
        self._homes = homes
        self._open_files = open_files
        self._spawners: dict[int, UserSpawner] = {}
        self._look_s = 0.0  # when to look for idle ones

    def start(self, kernel: Kernel, account: Account, launch: Launch) -> None:
        """Have the user's process spawn a kernel; the listener hears of the outcome.

        Raises:
            CreateFailed: there is no such process, and none can be started.
        """
        spawner = self._spawners.get(account.uid)
        if spawner is not None and spawner.account != account:  # the account's groups have changed
            self._retire(spawner)
            spawner = None
        if spawner is None:
            spawner = self._begin(account)
        spawner.start(kernel, launch)

    def give_up(self, kernel: Kernel) -> None:
        """Kill the process that should tell of a kernel's end, and does not."""
        for spawner in self._spawners.values():
            if spawner.has(kernel):
                spawner.kill()

    def close_idle(self, now_s: float) -> None:
        """End processes that have been idle for long."""
        if now_s < self._look_s:
            return
        self._look_s = now_s + _LOOK_PERIOD_S
        for spawner in list(self._spawners.values()):
            if spawner.idle and now_s > spawner.used_s + _IDLE_S:
                self._retire(spawner)

    def on_ended(self, spawner: "UserSpawner") -> None:
        if self._spawners.get(spawner.account.uid) is spawner:
            del self._spawners[spawner.account.uid]

    def _begin(self, account: Account) -> "UserSpawner":
        """
        Raises:
            CreateFailed: there are too many processes, or another cannot be started.
        """
        assert self.listener is not None
        if len(self._spawners) >= MAX_USERS:
            idle = [spawner for spawner in self._spawners.values() if spawner.idle]
            if not idle:
                detail = f"kernels of {MAX_USERS} users run here already"
                raise CreateFailed(CreateFailure.NO_PROCESSES, detail)
            self._retire(min(idle, key=lambda spawner: spawner.used_s))
        try:
            pid, peer = _spawn(account, self._homes, self._open_files)
            self.listener.helper_spawned(pid)
            spawner = UserSpawner(self, account, pid, peer, self.listener)
        except OSError as error:
            raise create_failure(error) from None
        self._spawners[account.uid] = spawner
        return spawner

    def _retire(self, spawner: "UserSpawner") -> None:
        """Give the process no more work; it ends once its kernels have."""
        self.on_ended(spawner)
        spawner.retire()


class UserSpawner:
    """One spawner process, with the kernels that it was told to spawn and those that it has
    spawned."""

    def __init__(
        self,
        spawners: UserSpawners,
        account: Account,
        pid: int,
        peer: socket.socket,
        listener: SpawnListener,
    ) -> None:
        """
        Raises:
            OSError: no descriptor is left.
        """
        self.account = account
        self.used_s = clock.now_s()
        self._spawners = spawners
        self._listener = listener
        self._pidfd = os.pidfd_open(pid)
        self._socket = peer
        buffer_bytes = peer.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        self._max_message_bytes = buffer_bytes - _SNDBUF_OVERHEAD_BYTES
        self._buffer = memoryview(bytearray(MAX_ANSWER_BYTES))
        self._unsent: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._last_number = 0
        self._programs: list[Program] = []  # those that the process keeps, by place
        self._last_place = -1  # the place given last
        self._asked: dict[int, Kernel] = {}  # by the number of the request
        self._running: dict[int, Kernel] = {}  # by pid
        self._retiring = False
        self._ready = False
        spawners.loop.watch(peer.fileno(), self._on_ready)

    @property
    def idle(self) -> bool:
        return not self._asked and not self._running

    def has(self, kernel: Kernel) -> bool:
        return self._running.get(kernel.pid) is kernel or kernel in self._asked.values()

    def start(self, kernel: Kernel, launch: Launch) -> None:
        """
        Raises:
            CreateFailed: the launch is too large to be sent.
        """
        assert kernel.output is not None
        hierarchies: tuple[str, ...] = ()
        fds: tuple[int, ...] = (kernel.output.write_fd,)
        if kernel.slot is not None:
            hierarchies = kernel.slot.hierarchies
            fds += tuple(kernel.slot.entry_fds)
        self._last_number += 1
        place = self._place_of(launch.program)
        message = launch_message(self._last_number, place, launch.env, launch.scratch, hierarchies)
        self._require_room(message)
        self._asked[self._last_number] = kernel
        self._say(message, fds)

    def _place_of(self, program: Program) -> int:
        """Where the process keeps a program, which it is told if it does not.

        Raises:
            CreateFailed: it is larger than what can be sent.
        """
        for place, kept in enumerate(self._programs):
            if kept is program:
                return place
        if program in self._programs:  # of another order, which says the same
            return self._programs.index(program)
        place = (self._last_place + 1) % MAX_PLACES
        message = program_message(place, program)
        if len(message) > _KEPT_PROGRAM_BYTES:
            place = MAX_PLACES  # where the next large one takes its place
            message = program_message(place, program)
        self._require_room(message)
        self._say(message)
        if place < MAX_PLACES:
            self._last_place = place
            self._programs[place : place + 1] = [program]
        return place

    def _require_room(self, message: bytes) -> None:
        """
        Raises:
            CreateFailed: the message is larger than what can be sent.
        """
        if len(message) > self._max_message_bytes:
            detail = (
                f"its command, environment and files take {len(message)} bytes, of which "
                f"{self._max_message_bytes} can be sent to the process of {self.account.name}: the "
                f"agent lacks CAP_NET_ADMIN, or net.core.wmem_max is low"
            )
            raise CreateFailed(CreateFailure.INTERNAL, detail)

    def retire(self) -> None:
        self._retiring = True
        self._end_if_retired()

    def kill(self) -> None:
        with suppress(OSError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _say(self, data: bytes, fds: tuple[int, ...] = ()) -> None:
        self.used_s = clock.now_s()
        self._unsent.append((data, fds))
        if len(self._unsent) == 1:
            self._send()

    def _send(self) -> None:
        while self._unsent:
            data, fds = self._unsent[0]
            try:
                socket.send_fds(self._socket, [data], list(fds), socket.MSG_DONTWAIT)
            except BlockingIOError:
                self._spawners.loop.wait_for(self._socket.fileno(), READABLE | WRITABLE)
                return
            except OSError:  # the process is gone, or cannot be told; its end will be read next
                self.kill()
            self._unsent.popleft()

    def _on_ready(self) -> None:
        if self._unsent:
            self._send()
            if not self._unsent:
                self._spawners.loop.wait_for(self._socket.fileno(), READABLE)
        try:
            size = self._socket.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
        except (BlockingIOError, ConnectionError):
            return  # raised once if it died with requests unread; its answers follow
        except OSError:
            size = 0
        if not size:
            self._end()
            return
        try:
            self._hear(self._buffer[:size])
        except (Garbled, KeyError):  # the process cannot be trusted any more
            self._end()
            return
        self._end_if_retired()

    def _hear(self, answer: memoryview) -> None:
        """
        Raises:
            Garbled, KeyError: it answers none of the orders.
        """
        self.used_s = clock.now_s()
        if is_failure(answer):
            number, failure = failure_of(answer)
            self._listener.not_spawned(self._asked.pop(number), failure)
            return
        for kind, pid, number, low, high, at in facts(answer):
            if kind == SPAWNED:
                kernel = self._running[pid] = self._asked.pop(number)
                self._listener.spawned(kernel, Spawned(pid, (low, high), at))
            elif kind == ENDED:
                if self._running.pop(pid, None) is not None:
                    self._listener.main_ended(pid, number)
            elif kind == READY and number == VERSION:
                self._ready = True
            else:
                raise Garbled(f"a fact {kind} about {number}")

    def _end_if_retired(self) -> None:
        if self._retiring and self.idle and not self._unsent:
            self._end()

    def _end(self) -> None:
        """End the process, which ends without its socket, or note that it has ended."""
        if self._socket.fileno() < 0:
            return
        self._spawners.on_ended(self)
        self._spawners.loop.close(self._socket.detach())
        self.kill()
        os.close(self._pidfd)
        # Kernels that still run become children of the supervisor, which reaps them. Others were
        # perhaps never spawned, or nobody else saw their end.
        asked, running = [*self._asked.values()], [*self._running.values()]
        self._asked.clear()
        self._running.clear()
        if self._ready:
            lost = [*asked, *(kernel for kernel in running if not _is_there(kernel))]
            if lost:
                self._listener.spawner_ended(lost)
            return
        detail = (
            f"no process could become {self.account.name} ({self.account.uid}), or this version of "
            f"muster was replaced while its supervisor ran on"
        )
        for kernel in asked:
            self._listener.not_spawned(kernel, CreateFailed(CreateFailure.INTERNAL, detail))


def _is_there(kernel: Kernel) -> bool:
    """Whether the kernel's main process exists, perhaps as a zombie."""
    stat = read_stat(kernel.pid)
    low, high = kernel.born_ticks
    return stat is not None and low <= stat.start_ticks <= high


def _spawn(
    account: Account, homes: Mapping[str, str], open_files: tuple[int, int] | None
) -> tuple[int, socket.socket]:
    """Start a process that becomes the account's user; also returns the socket to it.

    Raises:
        OSError: the process cannot be started.
    """
    script = f"{__file__.rsplit('/', 1)[0]}/__main__.py"
    settings = encode(
        {
            "uid": account.uid,
            "gid": account.gid,
            "groups": account.groups,
            "gains_privileges": account.gains_privileges,
            "open_files": open_files,
            "homes": dict(homes),
        }
    )
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        try:
            try:
                ours.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, MAX_MESSAGE_BYTES)
            except PermissionError:  # root in a container, without CAP_NET_ADMIN
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_MESSAGE_BYTES)
            pid = os.posix_spawn(
                sys.executable,
                (sys.executable, "-I", "-S", script, "--spawner", settings),
                {},
                file_actions=((os.POSIX_SPAWN_DUP2, theirs.fileno(), SOCKET_FD),),
                setsid=True,
                setsigmask=(),
            )
        except OSError:
            ours.close()
            raise
    return pid, ours
