"""Output of kernels of agents that were removed, where their directories are on this machine."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial

from muster.agent.logs import LogFiles
from muster.api.context import ReadLog
from muster.app.home import Home
from muster.core.ids import AgentId
from muster.wire.log_reading import AgentUnreachable, LogUnreadable
from muster.wire.messages import LogChunk, LogRequest
from muster.wire.transport import LOG_WINDOW_BYTES

WHY_GONE = "was removed; the output of its kernels was on its machine and nowhere else"


@dataclass(frozen=True, slots=True)
class KeptOutput:
    """Reads output from agents, and from directories of the home's own former agents: those stay
    when fewer agents are started than before (docs/operating.md).

    Args:
        exists: whether an agent has not been removed.
        from_agent: reads from an agent that exists, see ``AgentGateway.read_log``.
    """

    exists: Callable[[AgentId], bool]
    home: Home
    from_agent: ReadLog

    async def read(self, agent: AgentId, request: LogRequest) -> AsyncGenerator[LogChunk, None]:
        """See ``LogReader.read``.

        Raises:
            AgentUnreachable: also when the agent was removed and no directory has the output.
            LogUnreadable, Busy: see ``LogReader.read``.
        """
        if self.exists(agent):
            chunks = self.from_agent(agent, request)
        else:
            chunks = self._from_directory(agent, request)
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk

    async def _from_directory(
        self, agent: AgentId, request: LogRequest
    ) -> AsyncGenerator[LogChunk, None]:
        """The output of an ended kernel, as ``LogReader.read`` gives it."""
        files = await asyncio.to_thread(_kept_by, self.home, request)
        if files is None:
            raise AgentUnreachable(agent, WHY_GONE)
        left_bytes = request.limit_bytes
        while True:
            asked_bytes = min(left_bytes, LOG_WINDOW_BYTES)
            asked = replace(request, limit_bytes=asked_bytes)
            try:
                chunk = await asyncio.to_thread(partial(files.read_now, asked, ended=True))
            except OSError as error:
                raise LogUnreadable(error.strerror or str(error)) from None
            yield chunk
            left_bytes -= len(chunk.data)
            if chunk.eof or not chunk.data or left_bytes <= 0:
                return
            request = replace(request, offset=chunk.offset + len(chunk.data))


def _kept_by(home: Home, request: LogRequest) -> LogFiles | None:
    """The logs of the home's agent that ran the kernel; None if none of them has its log."""
    for directory in home.agent_directories():
        files = LogFiles(directory / "logs", is_live=lambda key: False)
        if files.has((request.kernel, request.generation)):
            return files
    return None
