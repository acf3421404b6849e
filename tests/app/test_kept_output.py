"""Output of removed agents: read from their directories, where the home still has them."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from muster.app.home import Home
from muster.app.kept_output import KeptOutput
from muster.core.ids import AgentId, KernelId
from muster.wire.log_reading import AgentUnreachable
from muster.wire.messages import LogChunk, LogRequest
from muster.wire.transport import LOG_WINDOW_BYTES

PRESENT, FORMER, KERNEL = AgentId("agt-1"), AgentId("agt-2"), KernelId("krn-1")
ALL = 2**40


async def from_agent(agent: AgentId, request: LogRequest) -> AsyncGenerator[LogChunk, None]:
    assert agent == PRESENT
    yield LogChunk(request.offset, b"of the agent", eof=True)


def kept(path: Path, data: bytes | None) -> KeptOutput:
    """The output of a home whose second agent left ``data``; None is no log."""
    home = Home(path)
    for name in ("agent-1", "agent-2"):
        (home.agent_directory(name) / "logs").mkdir(parents=True)
    if data is not None:
        (home.agent_directory("agent-2") / "logs" / f"{KERNEL}.0.log").write_bytes(data)
    return KeptOutput(lambda agent: agent == PRESENT, home, from_agent)


async def read(output: KeptOutput, agent: AgentId, offset: int = 0, limit: int = ALL) -> bytes:
    request = LogRequest(KERNEL, 0, offset, limit, follow=False)
    return b"".join([chunk.data async for chunk in output.read(agent, request)])


async def test_agent_that_exists_is_asked_itself(tmp_path: Path) -> None:
    assert await read(kept(tmp_path, b"on disk"), PRESENT) == b"of the agent"


async def test_output_of_a_former_agent_is_read_from_its_directory(tmp_path: Path) -> None:
    data = b"hello\n" * LOG_WINDOW_BYTES
    output = kept(tmp_path, data)
    assert await read(output, FORMER) == data
    assert await read(output, FORMER, offset=-6) == b"hello\n"
    assert await read(output, FORMER, offset=6, limit=5) == b"hello"


async def test_the_last_piece_says_that_no_more_comes(tmp_path: Path) -> None:
    request = LogRequest(KERNEL, 0, 0, ALL, follow=True)
    chunks = [chunk async for chunk in kept(tmp_path, b"hello").read(FORMER, request)]
    assert chunks == [LogChunk(0, b"hello", eof=True)]


async def test_output_that_went_with_its_machine_is_said_to_be_gone_at_once(
    tmp_path: Path,
) -> None:
    with pytest.raises(AgentUnreachable, match="was removed; the output of its kernels was on"):
        await read(kept(tmp_path, None), FORMER)


async def test_no_other_file_is_read_for_a_kernel_with_a_path_for_a_name(tmp_path: Path) -> None:
    output = kept(tmp_path, None)
    (tmp_path / "agents" / "agent-2" / "secret.0.log").write_bytes(b"secret")
    request = LogRequest(KernelId("../secret"), 0, 0, ALL, follow=False)
    with pytest.raises(AgentUnreachable):
        await anext(output.read(FORMER, request))
