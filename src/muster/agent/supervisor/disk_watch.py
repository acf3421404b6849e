"""The times at which scratch directories are measured, and the kernels that exceed their limit."""

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress

from muster.agent.supervisor import clock
from muster.agent.supervisor.kernel import OwnKernel, Status
from muster.agent.supervisor.loop import Loop

_PERIOD_S = 5.0
_REST = 20  # after a measurement nothing is measured for so many times its duration
_LONGEST_REST_S = 120.0  # else other trees could grow while a large one is measured
_MAX_TREES = 200  # a measurement
_READ_BYTES = 64 << 10
_MAX_ANSWER_BYTES = 1 << 20


class DiskWatch:
    """Measures the scratch directories of running kernels that have a limit.

    Args:
        loop: of the supervisor, which never waits for a measurement.
        live: the kernels to look at.
        spawned: called with each measuring process, to have it reaped.
        exceeded: called with the kernel whose directory is too large, and the fault.
    """

    def __init__(
        self,
        loop: Loop,
        live: Callable[[], Iterable[OwnKernel]],
        spawned: Callable[[int], None],
        exceeded: Callable[[OwnKernel, str], None],
    ) -> None:
        self._loop = loop
        self._live = live
        self._spawned = spawned
        self._exceeded = exceeded
        self._due_s = 0.0
        self._began_s = 0.0
        self._fd = -1  # of a measurement under way
        self._answer = bytearray()
        self._measured: list[OwnKernel] = []
        self._last: dict[OwnKernel, float] = {}  # when live kernels were last measured

    def idle_s(self, now_s: float) -> float:
        """The time until something has to be done, in seconds."""
        return max(0.0, self._due_s - now_s) if self._fd < 0 else _PERIOD_S

    def look(self, now_s: float) -> None:
        """Begin a measurement if the time for the next one has come."""
        if now_s < self._due_s or self._fd >= 0:
            return
        self._due_s = now_s + _PERIOD_S
        kernels = [kernel for kernel in self._live() if _is_bounded(kernel)]
        self._last = {kernel: self._last.get(kernel, 0.0) for kernel in kernels}
        if kernels:
            kernels.sort(key=self._last.__getitem__)
            self._begin(kernels[:_MAX_TREES], now_s)

    def _begin(self, kernels: list[OwnKernel], now_s: float) -> None:
        script = f"{__file__.rsplit('/', 1)[0]}/__main__.py"
        arguments = [sys.executable, "-I", "-S", script, "--measure"]
        for kernel in kernels:
            assert kernel.order is not None
            arguments += [str(kernel.order.template.disk_bytes), kernel.scratch]
        with suppress(OSError):  # the machine is full: later
            read_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                pid = os.posix_spawn(
                    sys.executable,
                    arguments,
                    {},
                    file_actions=((os.POSIX_SPAWN_DUP2, write_fd, 1),),
                    setsid=True,
                    setsigmask=(),
                )
            except OSError:
                os.close(read_fd)
                raise
            finally:
                os.close(write_fd)
            self._spawned(pid)
            self._fd, self._measured, self._began_s = read_fd, kernels, now_s
            self._answer.clear()
            self._loop.watch(read_fd, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return
        self._answer += data
        if data and len(self._answer) < _MAX_ANSWER_BYTES:
            return
        self._loop.close(self._fd)
        self._fd = -1
        now_s = clock.now_s()
        self._due_s = now_s + min(_LONGEST_REST_S, max(_PERIOD_S, _REST * (now_s - self._began_s)))
        lines = self._answer.decode(errors="replace").splitlines()
        # At least one tree counts as measured, or a tree that ends the process would come first for
        # ever.
        self._last.update(dict.fromkeys(self._measured[: max(1, len(lines))], self._began_s))
        for kernel, found in zip(self._measured, lines, strict=False):
            if found and _is_bounded(kernel):
                self._exceeded(kernel, found)
        self._measured = []


def _is_bounded(kernel: OwnKernel) -> bool:
    return (
        kernel.status is Status.RUNNING
        and kernel.scratch != ""
        and kernel.order is not None
        and kernel.order.template.disk_bytes > 0
        and clock.ticks(clock.now_s()) - kernel.born_ticks[1] > clock.ticks(1.0)
    )
