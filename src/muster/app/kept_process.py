"""A process beside a controller that is kept alive: started again whenever it ends, and left alone
where it outlived a controller until it ends by itself."""

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from muster.agent.supervisor import lock_file
from muster.app.home import open_log
from muster.app.keeper import ended_with
from muster.app.own_log import said_in
from muster.files import make_directory

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STOP_TIMEOUT_S = 20.0
"""Seconds that a process may take to end: more than the start of a supervisor takes, because an
agent waits for that before it ends."""
LOOK_AGAIN_S = 1.0
STEADY_S = 5.0
"""Seconds after which a process that was started again is no trouble any more."""
LAST_WORDS_BYTES = 2048
LAST_WORDS = 300
"""The longest sentence, in characters, that is told of a process that ended."""


@dataclass(slots=True)
class KeptProcess:
    """
    Args:
        name: for people, as in "agent agent-1".
        module: its program, which reads its settings from standard input.
        lock: the file whose lock it holds while it runs, in a directory of its own.
        log: the file of its output, in the same directory.
        settings: answers its settings as text, before each start.
    """

    name: str
    module: str
    lock: Path
    log: Path
    settings: Callable[[], Awaitable[str]]
    _ended: str | None = field(default=None, init=False)
    _began_s: float = field(default=0.0, init=False)

    @property
    def trouble(self) -> str | None:
        """A sentence on its last end, until it has run for ``STEADY_S`` again; None if it runs."""
        if self._began_s and time.monotonic() - self._began_s > STEADY_S:
            return None
        return self._ended

    async def keep(self) -> None:
        """Keep it until cancelled; then tell it to end."""
        pause_s = FIRST_PAUSE_S
        try:
            while True:
                if lock_file.is_held(self.lock):
                    self._ended = None
                    await asyncio.sleep(LOOK_AGAIN_S)
                    continue
                began_s = time.monotonic()
                end = await self.run_once()
                ran_s = time.monotonic() - began_s
                pause_s = FIRST_PAUSE_S if ran_s > LONGEST_PAUSE_S else pause_s
                self._ended, self._began_s = f"{self.name} ended with {end}", 0.0
                log.warning("%s, again in %.1f s", self._ended, pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        finally:
            await stop(self.lock)

    async def run_once(self) -> str:
        """Run it to its end; the answer says how it ended."""
        settings = await self.settings()
        make_directory(self.lock.parent, is_set=True)
        with open_log(self.log) as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self.module,
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._began_s = time.monotonic()
        try:
            await process.communicate(settings.encode())
            code = await process.wait()
        except asyncio.CancelledError:
            # A process that has just begun holds no lock yet by which it could be found.
            await _end(process)
            raise
        # One that was killed, or ended by itself, has said nothing about it.
        said = last_words(self.log) if code > 0 else ""
        return f"{ended_with(code)}: {said}" if said else ended_with(code)


def last_words(path: Path) -> str:
    """The last line of a log, cut to ``LAST_WORDS`` characters; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - LAST_WORDS_BYTES, 0))
            lines = file.read(LAST_WORDS_BYTES).decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return said_in(lines[-1])[-LAST_WORDS:] if lines else ""


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def stop(lock: Path) -> None:
    """Tell the process that holds a lock to end, and kill it if it does not. One that cannot be
    seen to hold it is left alone."""
    process = lock_file.holder_of(lock)
    if process is None:
        return
    for signum in (signal.SIGTERM, signal.SIGKILL):
        lock_file.signal_holder(lock, signum, only=process)
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if not lock_file.is_held(lock):
                return
            await asyncio.sleep(0.02)
    log.error("the process %s, which holds %s, does not end", process, lock)
