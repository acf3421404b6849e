"""Output of kernels of agents that are away, where their directories are on this machine."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial

from muster.agent.logs import LogFiles
from muster.agent.removed_outputs import REMOVED_OUTPUTS, RemovedOutputs
from muster.api.context import ReadLog
from muster.app.home import Home
from muster.core.ids import AgentId, KernelId
from muster.core.states import KERNEL_TABLE
from muster.store.live import Live
from muster.wire.calls import (
    LogChunk,
    LogRequest,
    StderrNotApart,
)
from muster.wire.log_reading import LogUnreadable, OutputUnreachable
from muster.wire.transport import LOG_WINDOW_BYTES

WHY_GONE = "was removed; the output of its kernels was on its machine and nowhere else"


@dataclass(frozen=True, slots=True)
class KeptOutput:
    """Reads output from agents, and of ended kernels also from directories of the home's own agents
    that are away: those of former agents stay when fewer are started (docs/operating.md).

    Args:
        live: the mirror, which says whether an agent exists and is connected, and a kernel lives.
        from_agent: reads from an agent that exists, see ``AgentGateway.read_log``.
    """

    live: Callable[[], Live]
    home: Home
    from_agent: ReadLog

    async def read(self, agent: AgentId, request: LogRequest) -> AsyncGenerator[LogChunk, None]:
        """See ``LogReader.read``.

        Raises:
            AgentUnreachable: also when the agent was removed and no directory has the output.
            LogUnreadable, Busy: see ``LogReader.read``.
        """
        files = None
        if self._is_away(agent, request.kernel):
            files = await asyncio.to_thread(_kept_by, self.home, request)
        if files is not None:
            chunks = _read(files, request)
        elif agent in self.live().agents:
            chunks = self.from_agent(agent, request)
        else:
            raise OutputUnreachable(agent, WHY_GONE)
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk

    def _is_away(self, agent: AgentId, kernel: KernelId) -> bool:
        """Whether an agent is not there to be asked about a kernel that has ended."""
        live = self.live()
        known, runs = live.agents.get(agent), live.kernels.get(kernel)
        if runs is not None and runs.status not in KERNEL_TABLE.terminal:
            return False
        return known is None or not known.connected


async def _read(files: LogFiles, request: LogRequest) -> AsyncGenerator[LogChunk, None]:
    """The output of an ended kernel, as ``LogReader.read`` gives it.

    Raises:
        LogUnreadable: a file cannot be read.
    """
    left_bytes = request.limit_bytes
    while True:
        asked = replace(request, limit_bytes=min(left_bytes, LOG_WINDOW_BYTES))
        try:
            chunk = await asyncio.to_thread(partial(files.read_now, asked, ended=True))
        except StderrNotApart as together:
            raise LogUnreadable(str(together)) from None
        except OSError as error:
            raise LogUnreadable(error.strerror or str(error)) from None
        yield chunk
        left_bytes -= len(chunk.data)
        if chunk.eof or not chunk.data or left_bytes <= 0:
            return
        request = replace(request, offset=chunk.offset + len(chunk.data))


def _kept_by(home: Home, request: LogRequest) -> LogFiles | None:
    """The logs of the home's agent that ran the kernel; None if none of them knows of its log."""
    key = (request.kernel, request.generation)
    for directory in home.agent_directories():
        removed = RemovedOutputs(directory / REMOVED_OUTPUTS)
        files = LogFiles(directory / "logs", is_live=lambda _: False, removed=removed)
        if files.has(key) or removed.of(key) is not None:
            return files
    return None
