"""Output of agents that are away: read from their directories, where the home still has them."""

from pathlib import Path

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import cpus
from tests.control.world import ADA, World

from muster.app.home import Home
from muster.app.kept_output import KeptOutput
from muster.control.agent.requests import AgentRequests
from muster.core.ids import KernelId
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, AgentBar
from muster.wire.calls import (
    LogChunk,
    LogRequest,
)
from muster.wire.log_reading import LogReader, OutputUnreachable
from muster.wire.transport import LOG_WINDOW_BYTES

ALL = 2**40


class Kept:
    """A cluster whose agent ran a kernel, which wrote ``data``, in its directory of a home."""

    def __init__(self, path: Path, data: bytes | None = b"hello", seconds: float = 1.0) -> None:
        self.world = World(path, {"agent-2": cpus(4)}, behaviour=lambda start: Run(seconds))
        self.agent = self.world.agent("agent-2")
        job = self.world.submit(JobSpec(command=["work"]))
        self.world.run(0.5)
        (self.kernel,) = self.world.plane.live.kernels.values()
        self.id, self.generation = self.kernel.id, self.kernel.generation
        self.world.run(5.0)
        assert (job.status in JOB_TABLE.terminal) is (seconds < 5.0)
        home = Home(path / "home")
        for name in ("agent-1", "agent-2"):
            (home.agent_directory(name) / "logs").mkdir(parents=True)
        if data is not None:
            log = f"{self.id}.{self.generation}.log"
            (home.agent_directory("agent-2") / "logs" / log).write_bytes(data)
        reader = LogReader()  # nobody is connected to it
        self.output = KeptOutput(lambda: self.world.plane.live, home, reader.read)

    def leave(self) -> None:
        self.world.disconnect(self.agent)
        self.world.run(0.5)

    def remove(self) -> None:
        id_, draining = self.agent.id, AgentBar.DRAINING
        self.world.ask(lambda work, parts: parts[AgentRequests].bar(work, ADA, id_, draining))
        self.world.ask(lambda work, parts: parts[AgentRequests].remove(work, ADA, id_))
        assert id_ not in self.world.plane.live.agents

    def request(self, offset: int = 0, limit: int = ALL, *, follow: bool = False) -> LogRequest:
        return LogRequest(KernelId(self.id), self.generation, offset, limit, follow)

    async def read(self, offset: int = 0, limit: int = ALL) -> bytes:
        pieces = self.output.read(self.agent.id, self.request(offset, limit))
        return b"".join([chunk.data async for chunk in pieces])


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.wire.log_reading.AGENT_WAIT_S", 0.05)


async def test_agent_that_is_connected_is_asked_itself(tmp_path: Path) -> None:
    with pytest.raises(OutputUnreachable, match="is not connected"):
        await Kept(tmp_path).read()


async def test_output_of_a_removed_agent_is_read_from_its_directory(tmp_path: Path) -> None:
    data = b"hello\n" * LOG_WINDOW_BYTES
    kept = Kept(tmp_path, data)
    kept.remove()
    assert await kept.read() == data
    assert await kept.read(offset=-6) == b"hello\n"
    assert await kept.read(offset=6, limit=5) == b"hello"


async def test_output_of_an_agent_that_is_away_is_read_from_its_directory(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.leave()
    assert await kept.read() == b"hello"


async def test_kernel_that_may_run_still_is_asked_of_its_agent(tmp_path: Path) -> None:
    kept = Kept(tmp_path, seconds=1000.0)
    kept.leave()
    with pytest.raises(OutputUnreachable, match="is not connected"):
        await kept.read()


async def test_the_last_piece_says_that_no_more_comes(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.remove()
    pieces = kept.output.read(kept.agent.id, kept.request(follow=True))
    assert [chunk async for chunk in pieces] == [LogChunk(0, b"hello", eof=True)]


async def test_output_that_went_with_its_machine_is_said_to_be_gone_at_once(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path, data=None)
    kept.remove()
    with pytest.raises(OutputUnreachable, match="was removed; the output of its kernels was on"):
        await kept.read()


async def test_no_other_file_is_read_for_a_kernel_with_a_path_for_a_name(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.remove()
    (tmp_path / "home" / "agents" / "agent-2" / "secret.0.log").write_bytes(b"secret")
    request = LogRequest(KernelId("../secret"), 0, 0, ALL, follow=False)
    with pytest.raises(OutputUnreachable):
        await anext(kept.output.read(kept.agent.id, request))
