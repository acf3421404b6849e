"""The watching process as its agent keeps it: started, heard, and given up when it is silent.

Neither a driver that hangs nor a process that ends again and again costs the agent more than one
process and one pipe.
"""

import asyncio
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from muster.agent.health.check import CheckedMachine
from muster.agent.health.gpu_watch import GpuReport
from muster.agent.health.running import few_variables
from muster.core.resources import Device

log = logging.getLogger(__name__)

WATCH = (sys.executable, "-P", "-m", "muster.agent.health.gpu_watch")
HANG_S = 60.0
"""Seconds after which a report that is due counts as one that will not come."""
FIRST_PAUSE_S = 10.0
LONGEST_PAUSE_S = 600.0
"""Seconds until a process that ended is started again: ever more."""
KILLED_S = 5.0
LOOK_AGAIN_S = 10.0
"""Seconds between two looks whether a process that cannot be killed has ended at last."""
MAX_LINE = 1 << 20
"""Bytes of a report, at most."""


class GpuProcess:
    """
    Args:
        devices: the GPUs that the agent has.
        heard: called with each report.
        silent: called with the seconds for which none came, when the process is given up.
        hang_s: how long it may be late.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        heard: Callable[[GpuReport], None],
        silent: Callable[[float], None],
        *,
        command: Sequence[str] = WATCH,
        hang_s: float = HANG_S,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._input = msgspec.json.encode(CheckedMachine(devices=tuple(devices)))
        self._heard = heard
        self._silent = silent
        self._command = tuple(command)
        self._hang_s = hang_s
        self._first_pause_s = first_pause_s
        self._process: subprocess.Popen[bytes] | None = None
        self._may_run = asyncio.Event()
        self._may_run.set()

    def pause(self) -> None:
        """End the process, and start none until ``resume``: a GPU that somebody has open, be it to
        watch it, is not reset."""
        self._may_run.clear()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()  # whoever hears it reaps it

    def resume(self) -> None:
        self._may_run.set()

    def close(self) -> None:
        """Kill the process; nothing waits for one that cannot be killed."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            try:
                self._process.wait(KILLED_S)
            except subprocess.TimeoutExpired:
                log.warning("the process that watches the GPUs cannot be killed")

    async def run(self) -> None:
        """Keep a process. Does not return."""
        pause_s = self._first_pause_s
        while True:
            await self._may_run.wait()
            began_s = time.monotonic()
            try:
                await self._attend()
            except OSError as error:
                log.warning("the GPUs are not watched: %s", error.strerror or error)
            if time.monotonic() - began_s > LONGEST_PAUSE_S:
                pause_s = self._first_pause_s
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _attend(self) -> None:
        """Hear one process from its start until it is gone.

        Raises:
            OSError: it cannot be started.
        """
        process = self._process = self._started()
        assert process.stdout is not None
        with process.stdout as output:
            os.set_blocking(output.fileno(), False)
            try:
                await self._listen(output.fileno())
            finally:
                process.kill()
        waited_s = 0.0
        while process.poll() is None:  # reaped here alone: no thread waits for it
            step_s = 0.05 if waited_s < KILLED_S else LOOK_AGAIN_S
            await asyncio.sleep(step_s)
            waited_s += step_s

    def _started(self) -> "subprocess.Popen[bytes]":
        standard_input = os.memfd_create("gpus")
        try:
            os.write(standard_input, self._input)
            os.lseek(standard_input, 0, os.SEEK_SET)
            return subprocess.Popen(
                self._command,
                stdin=standard_input,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=few_variables(),
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(standard_input)

    async def _listen(self, descriptor: int) -> None:
        """Pass reports on until the process ends, is late, or says what is none."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(descriptor, readable.set)
        rest, limit_s = b"", self._hang_s
        try:
            while True:
                try:
                    async with asyncio.timeout(limit_s):
                        await readable.wait()
                except TimeoutError:
                    log.warning("no report on the GPUs for %.0f s: the driver hangs", limit_s)
                    self._silent(limit_s)
                    return
                readable.clear()
                try:
                    data = os.read(descriptor, MAX_LINE)
                except BlockingIOError:
                    continue
                *lines, rest = (rest + data).split(b"\n")
                if not data or len(rest) > MAX_LINE:
                    return
                for line in lines:
                    report = msgspec.json.decode(line, type=GpuReport)
                    limit_s = report.next_s + self._hang_s
                    self._heard(report)
        except msgspec.MsgspecError as error:
            log.warning("the process that watches the GPUs is not understood: %s", error)
        finally:
            loop.remove_reader(descriptor)
