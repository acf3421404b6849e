"""The supervisor's end of one spawner process, which spawns the kernels of a user."""

import os
import select
import signal
import socket
from collections import Counter, deque
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Protocol

from muster.agent.supervisor import clock
from muster.agent.supervisor.failures import CannotExecute, CreateFailed
from muster.agent.supervisor.kernel import CreateFailure, OwnKernel
from muster.agent.supervisor.loop import READABLE, WRITABLE, Loop
from muster.agent.supervisor.process_tree import ProcessStat, read_stat
from muster.agent.supervisor.protocol import KernelAccount, Program
from muster.agent.supervisor.spawn_messages import (
    DROPPED,
    ENDED,
    MAX_ANSWER_BYTES,
    MAX_PLACES,
    READY,
    SPAWNED,
    VERSION,
    Garbled,
    drop_message,
    facts,
    failure_of,
    is_failure,
    launch_message,
    lease_message,
    now_message,
    program_message,
)
from muster.agent.supervisor.spawner import Launch, Spawned

# Standbys for each running kernel of their shape, so that their process can tell of many ends at
# once; each takes descriptors, a cgroup and a directory.
_STANDBYS_A_KERNEL = 4
_MAX_STANDBYS = 16
_DEATH_MS = 100  # how long a killed process may take to be gone
_KEPT_PROGRAM_BYTES = 64 << 10
_SNDBUF_OVERHEAD_BYTES = 64  # of the buffer, a message may take all but 32


class SpawnListener(Protocol):
    """The listener for kernels that another process was told to spawn, or has spawned."""

    def spawned(self, kernel: OwnKernel, spawned: Spawned) -> None:
        """The kernel runs."""

    def not_spawned(self, kernel: OwnKernel, failure: CreateFailed | CannotExecute) -> None:
        """No process of the kernel runs, or has."""

    def dropped(self, kernel: OwnKernel) -> None:
        """The kernel stands by no more; no process of it ran."""

    def main_ended(self, kernel: OwnKernel, wait_status: int, heir: OwnKernel | None) -> None:
        """A main process was reaped. If the kernel has an heir, none of its processes is left, and
        the heir is being spawned."""

    def spawner_ended(self, kernels: Collection[OwnKernel]) -> None:
        """The spawner has ended: how these kernels end, or whether they were ever spawned, will not
        be reported."""

    def helper_spawned(self, pid: int) -> None:
        """A process of the supervisor's own is to be reaped."""


class UserSpawner:
    """One spawner process, with the kernels that it was told to spawn and those that it has
    spawned."""

    def __init__(
        self,
        account: KernelAccount,
        pid: int,
        peer: socket.socket,
        loop: Loop,
        listener: SpawnListener,
        on_ended: "Callable[[UserSpawner], None]",
    ) -> None:
        """
        Raises:
            OSError: no descriptor is left.
        """
        self.account = account
        self.used_s = clock.now_s()
        self._loop = loop
        self._on_ended = on_ended
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
        self._requested: dict[int, OwnKernel] = {}  # by the number of the request
        self._standbys: dict[OwnKernel, int] = {}  # those of them that wait for others to end
        self._running: dict[int, OwnKernel] = {}  # by pid
        # By shape: running kernels in whose places others may follow, and those that stand by.
        self._hosts: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._told_lease_end_s = 0.0
        self._retiring = False
        self._ready = False
        loop.watch(peer.fileno(), self._on_ready)
        loop.watch(self._pidfd, self._on_death)

    @property
    def idle(self) -> bool:
        return not self._requested and not self._running

    @property
    def has_standbys(self) -> bool:
        return bool(self._standbys)

    def stands_by(self, kernel: OwnKernel) -> bool:
        return kernel in self._standbys

    def owes_end_of(self, kernel: OwnKernel) -> bool:
        """Whether the process should have told of the end of a kernel that was killed."""
        running = self._running.get(kernel.pid) is kernel
        return not _is_dying(kernel) if running else kernel in self._requested.values()

    def start(self, kernel: OwnKernel, launch: Launch, *, standby: bool = False) -> None:
        """
        Raises:
            CreateFailed: the launch is too large to be sent.
        """
        assert kernel.output is not None
        hierarchies: tuple[str, ...] = ()
        fds: tuple[int, ...] = kernel.output.write_fds
        outputs = len(fds)
        if kernel.slot is not None:
            hierarchies = kernel.slot.hierarchies
            fds += (*kernel.slot.entry_fds, kernel.slot.population_fd)
        number = self._last_number = self._last_number + 1
        place = self._place_of(launch.program)
        message = launch_message(
            number, place, launch, hierarchies, kernel.shape, outputs, waits=standby
        )
        self._require_room(message)
        self._requested[number] = kernel
        if standby:
            self._standbys[kernel] = number
            self._waiting[kernel.shape] += 1
        self._say(message, fds)

    def wants_standby(self, shape: str) -> bool:
        wanted = min(_STANDBYS_A_KERNEL * self._hosts[shape], _MAX_STANDBYS)
        return self._waiting[shape] < wanted and not self._retiring

    def launch_now(self, kernel: OwnKernel) -> None:
        self._say(now_message(kernel.shape, self._stands_no_more(kernel)))

    def drop(self, kernel: OwnKernel) -> None:
        self._say(drop_message(kernel.shape, self._standbys[kernel]))

    def tell_lease(self, until_s: float) -> None:
        """Tell until when kernels that stand by may be spawned, in seconds since boot."""
        if self._told_lease_end_s != until_s:
            self._told_lease_end_s = until_s
            self._say(lease_message(until_s))

    def _place_of(self, program: Program) -> int:
        """The place in which the process keeps a program, which is sent to it if it is not there.

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
                self._loop.wait_for(self._socket.fileno(), READABLE | WRITABLE)
                return
            except OSError:  # the process is gone, or cannot be told; its end will be read next
                self.kill()
            self._unsent.popleft()

    def _on_ready(self) -> None:
        if self._unsent:
            self._send()
            if not self._unsent:
                self._loop.wait_for(self._socket.fileno(), READABLE)
        self._receive()
        self._end_if_retired()

    def _on_death(self) -> None:
        """Hear the last answers of a process that is dead. Its socket may be open still: a process
        that it was about to spawn has it, and its user may have stopped that one."""
        if not self._is_dead(0):
            return  # called for nothing: another's descriptor had this number
        while self._receive():
            pass
        self._end()

    def _receive(self) -> bool:
        """Hear an answer; false if there is none."""
        try:
            size = self._socket.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionError:
            return True  # raised once if it died with requests unread; its answers follow
        except OSError:
            size = 0
        try:
            if size:
                self._hear(self._buffer[:size])
                return True
        except (Garbled, KeyError):  # the process cannot be trusted any more
            pass
        self._end()
        return False

    def _hear(self, answer: memoryview) -> None:
        """
        Raises:
            Garbled, KeyError: it answers none of the orders.
        """
        self.used_s = clock.now_s()
        if is_failure(answer):
            number, failure = failure_of(answer)
            self._listener.not_spawned(self._answered(number), failure)
            return
        for kind, pid, number, low, high, at in facts(answer):
            if kind == SPAWNED:
                kernel = self._running[pid] = self._answered(number)
                self._hosts[kernel.shape] += _is_host(kernel)
                self._listener.spawned(kernel, Spawned(pid, (low, high), at))
            elif kind == ENDED:
                kernel = self._running.pop(pid)
                _subtract(self._hosts, kernel.shape, _is_host(kernel))
                heir = self._requested[low] if low else None
                if heir in self._standbys:
                    self._stands_no_more(heir)
                self._listener.main_ended(kernel, number, heir)
            elif kind == DROPPED:
                self._listener.dropped(self._answered(number))
            elif kind == READY and number == VERSION:
                self._ready = True
            else:
                raise Garbled(f"a fact {kind} about {number}")

    def _answered(self, number: int) -> OwnKernel:
        """The kernel of a request that is answered now.

        Raises:
            KeyError: there is no such request.
        """
        kernel = self._requested.pop(number)
        if kernel in self._standbys:
            self._stands_no_more(kernel)
        return kernel

    def _stands_no_more(self, kernel: OwnKernel) -> int:
        """The number of the request of a kernel that stood by until now."""
        _subtract(self._waiting, kernel.shape, 1)
        return self._standbys.pop(kernel)

    def _end_if_retired(self) -> None:
        if self._retiring and self.idle and not self._unsent:
            self._end()

    def _end(self) -> None:
        """End the process, which ends without its socket, or note that it has ended."""
        if self._socket.fileno() < 0:
            return
        self._on_ended(self)
        self._loop.close(self._socket.detach())
        self.kill()
        is_dead = self._is_dead(_DEATH_MS)
        self._loop.close(self._pidfd)
        # Kernels that still run become children of the supervisor, which reaps them; nobody else
        # saw the end of the others. Of those that were asked for, some may have been spawned.
        unseen = [kernel for kernel in self._running.values() if _stat_of(kernel) is None]
        detail = "the process that starts its user's kernels was killed"
        if not self._ready:
            never_begun = [*self._requested.values()]
            detail = (
                f"no process could become {self.account.name} ({self.account.uid}), or this "
                f"version of muster was replaced while its supervisor ran on"
            )
        elif is_dead:
            never_begun = self._never_begun(unseen)
        else:
            never_begun = []
        lost = [*(each for each in self._requested.values() if each not in never_begun), *unseen]
        for number in list(self._requested):
            self._answered(number)
        self._running.clear()
        if lost:
            self._listener.spawner_ended(lost)
        for kernel in never_begun:
            self._listener.not_spawned(kernel, CreateFailed(CreateFailure.INTERNAL, detail))

    def _is_dead(self, wait_ms: int) -> bool:
        death = select.poll()
        death.register(self._pidfd, select.POLLIN)
        return bool(death.poll(wait_ms))

    def _never_begun(self, unseen: Collection[OwnKernel]) -> list[OwnKernel]:
        """The kernels that stood by, and that the dead process cannot have spawned: it did so only
        once it had reaped a kernel of their shape, which it may not have told it had spawned.

        Args:
            unseen: the kernels that it may have reaped and not told of.
        """
        reaped = {kernel.shape for kernel in unseen if kernel.wait_status is None}
        reaped |= {each.shape for each in self._requested.values() if each not in self._standbys}
        return [kernel for kernel in self._standbys if kernel.shape not in reaped]


def _is_host(kernel: OwnKernel) -> bool:
    """Whether a kernel of its shape may follow in its place without the supervisor: no process of
    it is left once its cgroup is empty, and it has no devices to pass on."""
    return kernel.slot is not None and not kernel.devices


def _subtract(counts: Counter[str], shape: str, number: int) -> None:
    counts[shape] -= number
    if not counts[shape]:
        del counts[shape]


def _stat_of(kernel: OwnKernel) -> ProcessStat | None:
    """The kernel's main process, perhaps a zombie; None if it was reaped."""
    stat = read_stat(kernel.pid)
    low, high = kernel.born_ticks
    return stat if stat is not None and low <= stat.start_ticks <= high else None


def _is_dying(kernel: OwnKernel) -> bool:
    """Whether the kernel's main process cannot be reaped yet: the last of its threads gives its
    memory back, which may take long."""
    stat = _stat_of(kernel)
    with suppress(OSError):
        threads = os.listdir(f"/proc/{kernel.pid}/task")  # noqa: PTH208
        return stat is not None and (stat.state != "Z" or len(threads) > 1)
    return False
