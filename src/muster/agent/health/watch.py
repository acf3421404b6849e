"""The watch of a machine's health: the kernel's log and the GPUs' own reports (design: Machine
health).

It waits for both without a thread of its own; only the file that it keeps is written in one,
because a disk may hang. Its cost is bounded by pauses, whatever the log or the GPUs say.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from muster.agent.boot import Boot
from muster.agent.health.counters import GpuCounters
from muster.agent.health.gpu_process import WATCH, GpuProcess
from muster.agent.health.gpu_watch import GpuReport
from muster.agent.health.judge import HealthJudge, Moment
from muster.agent.health.kmsg import KERNEL_LOG, KernelLog, NoKernelLog
from muster.agent.health.memory import encoded, load_memory, write_memory
from muster.agent.health.sightings import SightingBox
from muster.agent.supervisor import clock
from muster.core.health.kernel_log import LogPosition, XidEvent
from muster.core.resources import Device
from muster.wire.duplex import run_until_one_ends

log = logging.getLogger(__name__)

SETTLE_S = 3.0
"""Seconds for which Xids are collected, so that those of one mishap are judged together."""
LOG_PAUSE_S = 1.0
"""Seconds between two readings of the kernel's log."""
RECORDS_AT_ONCE = 1000
MAX_XIDS = 512
"""Xids that are collected, at most."""
SAVE_S = 600.0
"""Seconds after which the place in the kernel's log, and the time, are saved though nothing
happened."""
NOTED_S = 10.0
"""Seconds after which it is looked whether the controller has noted sightings."""


class HealthWatch:
    """
    Args:
        directory: the agent's, which holds the watch's memory.
        devices: the GPUs that the agent found.
        told: called when there is something to be told.
        held: the GPUs that work holds, by their indexes; None where that is not known.
        now: the time, for tests.
    """

    def __init__(
        self,
        directory: Path,
        boot: Boot,
        devices: Sequence[Device],
        told: Callable[[], None],
        held: Callable[[], Collection[int] | None] = lambda: None,
        *,
        kernel_log: Path = KERNEL_LOG,
        command: Sequence[str] = WATCH,
        settle_s: float = SETTLE_S,
        now: Callable[[], Moment] | None = None,
    ) -> None:
        self._directory = directory
        self._boot = boot
        self._told = told
        self._held = held
        self._settle_s = settle_s
        self._now = now or self._clocks
        self.counters = GpuCounters(lambda: self._now().boot_s)
        moment = self._now()
        self._memory = load_memory(directory, moment.time_s)
        self._memory.enter(boot.id, moment.boot_s, moment.time_s)
        self.box = SightingBox(self._memory.untold, self._memory.last_seq)
        self.judge = HealthJudge(self._memory, self.box, boot.id, devices)
        self._had_gpus = bool(devices or self._memory.gpus)
        self._gpus = GpuProcess(devices, self._heard, self._silent, command=command)
        self._log_path = kernel_log
        self._log: KernelLog | None = None
        self._xids: list[XidEvent] = []
        self._something = asyncio.Event()
        self._saved: tuple[int, int] = (self.box.last_seq, len(self.box.kept))

    @property
    def is_needed(self) -> bool:
        """Whether the machine has GPUs, or had some at an earlier start."""
        return self._had_gpus

    def let_go(self, gone: bool) -> None:
        """Let the GPUs go while they are reset, or take hold of them again."""
        if gone:
            self._gpus.pause()
        else:
            self._gpus.resume()

    async def run(self) -> None:
        """Watch. Does not return."""
        with suppress(NoKernelLog):
            self._log = self._opened()
        if self._log is None:
            log.info("the kernel's log cannot be read; Xids are heard from NVML alone")
        try:
            await run_until_one_ends(self._read_log(), self._gpus.run(), self._keep())
        finally:
            self._gpus.close()
            if self._log is not None:
                self._log.close()
                self._log = None

    def _opened(self) -> KernelLog:
        """
        Raises:
            NoKernelLog: there is none.
        """
        read_to = self._memory.read_to
        position = None if read_to is None else LogPosition(self._boot.id, read_to)
        return KernelLog(self._boot.id, position, path=self._log_path, began_s=self._boot.began_s)

    async def _read_log(self) -> None:
        if (kernel_log := self._log) is None:
            await asyncio.Event().wait()
            return
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        while True:
            readable.clear()
            try:
                loop.add_reader(kernel_log, readable.set)
            except (OSError, PermissionError):  # a plain file, which is always readable
                readable.set()
            try:
                await readable.wait()
            finally:
                with suppress(OSError):
                    loop.remove_reader(kernel_log)
            try:
                found = kernel_log.events(RECORDS_AT_ONCE)
            except NoKernelLog as error:
                log.warning("%s; Xids are heard from NVML alone", error)
                self._note_position()
                kernel_log.close()
                self._log = None
                await asyncio.Event().wait()
                return
            self._collect(found)
            await asyncio.sleep(LOG_PAUSE_S)

    def _collect(self, found: Sequence[XidEvent]) -> None:
        room, began_s = MAX_XIDS - len(self._xids), self._boot.began_s
        self._xids += [_of_boot(each, began_s) for each in found[:room]]
        if found:
            self._something.set()

    def errors_of(self, gpus: Collection[int]) -> str:
        """The errors of these GPUs a moment ago, in words; empty if there were none."""
        if self._log is not None:
            with suppress(NoKernelLog):  # whoever reads it next finds out
                self._collect(self._log.events(RECORDS_AT_ONCE))
        return self.judge.errors_of(gpus, self._xids, self._now())

    def _heard(self, report: GpuReport) -> None:
        now = self._now()
        self.judge.gpus(report, now)
        self.judge.nvml_events(report.xids, now)
        if report.samples:
            self.counters.add(report.samples, self._held())
        if self._log is None:  # else the log tells them, with more words
            found = (self.judge.xid_of(*each, now) for each in report.xids)
            self._xids += [each for each in found if each is not None][: MAX_XIDS - len(self._xids)]
        if self._xids or self.box.last_seq != self._saved[0]:
            self._something.set()

    def _silent(self, for_s: float) -> None:
        self.judge.silent(for_s, self._now())
        self._something.set()

    async def _keep(self) -> None:
        """Judge collected Xids, and save what is to be kept."""
        saved_s = 0.0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(NOTED_S):
                    await self._something.wait()
            self._something.clear()
            if self._xids:
                await asyncio.sleep(self._settle_s)
            if self.look() or self._now().boot_s > saved_s + SAVE_S:
                await self._save()
                saved_s = self._now().boot_s

    def look(self) -> bool:
        """Judge what was collected; the answer is whether there is something to be saved."""
        xids, self._xids = self._xids, []
        if xids:
            self.judge.xids(xids, self._now())
        if self.box.last_seq > self._saved[0]:
            self._told()
        return bool(xids) or self._saved != (self.box.last_seq, len(self.box.kept))

    async def _save(self) -> None:
        now, memory = self._now(), self._memory
        memory.note_time(now.boot_s, now.time_s)
        if not self._xids:
            self._note_position()
        memory.last_seq, memory.untold = self.box.last_seq, tuple(self.box.kept)
        data = encoded(memory)
        self._saved = (memory.last_seq, len(memory.untold))
        try:
            await asyncio.to_thread(write_memory, self._directory, data)
        except OSError as error:
            log.warning("what was seen of the machine's health is not kept: %s", error.strerror)

    def _note_position(self) -> None:
        if self._log is not None and self._log.position is not None:
            self._memory.read_to = self._log.position.sequence

    def _clocks(self) -> Moment:
        return Moment(clock.now_s() - self._boot.began_s, time.time())


def _of_boot(event: XidEvent, began_s: float) -> XidEvent:
    """The event, its time counted from the beginning of the machine's own boot."""
    return event if not began_s else replace(event, at_s=event.at_s - began_s)
