"""The end of an agent with all its work: real processes, which a controller had it start."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.conftest import cgroups
from tests.e2e.cluster import assert_no_survivors
from tests.living_files import files_below
from tests.patience import until_awaited
from tests.wire.controller import TOKEN, Controller, controller, template

from muster.agent.config import default_users_directory
from muster.agent.supervisor import lock_file
from muster.agent.supervisor.cgroup_places import cgroups_name
from muster.agent.supervisor.shutdown import LOCK_NAME
from muster.app.ended_agent import end_agent
from muster.app.local_agents import holder
from muster.core.errors import MusterError
from muster.core.ids import KernelId
from muster.wire.messages import ReportKind, Start

STUBBORN = ("/bin/sh", "-c", "trap '' TERM; touch kept; setsid sleep 600 & sleep 600")


@asynccontextmanager
async def agent(directory: Path) -> AsyncIterator[Controller]:
    """An agent with a kernel that does not end by itself."""
    async with controller() as made:
        words = ["--controller", made.address, "--token", TOKEN, "--dir", str(directory)]
        started = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "muster.cli.main", "agent", *words
        )
        try:
            await made.until(lambda: bool(made.hellos))
            made.command(Start(KernelId("krn-1"), 1, template(*STUBBORN, grace_s=0.2), {}))
            await made.report(KernelId("krn-1"), ReportKind.STARTED)
            yield made
        finally:
            with suppress(ProcessLookupError):
                started.kill()
            await started.wait()
            await asyncio.to_thread(end_agent, directory, wipe=True, grace_s=0.2)


def scratch(directory: Path) -> list[Path]:
    """The files that the kernel made."""
    places = [directory, default_users_directory()]
    return [path for place in places for path in files_below(place, "kept")]


async def test_agent_ends_with_its_work_and_its_files_stay(tmp_path: Path) -> None:
    directory = tmp_path / "agent"
    async with agent(directory):
        await until_awaited(lambda: scratch(directory))
        await asyncio.to_thread(end_agent, directory, grace_s=0.2)

        assert holder(directory) is None
        assert not lock_file.is_held(directory / LOCK_NAME)
        assert_no_survivors(directory)
        assert scratch(directory)
        assert (directory / "credential.json").exists()


async def test_nothing_is_left_of_an_agent_that_is_wiped(tmp_path: Path) -> None:
    directory = tmp_path / "agent"
    async with agent(directory):
        await until_awaited(lambda: scratch(directory))
        await asyncio.to_thread(end_agent, directory, wipe=True, grace_s=0.2)

        assert_no_survivors(directory)
        assert scratch(directory) == []
        assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("killed", ["supervisor", "both"])
async def test_work_of_a_supervisor_that_died_ends_too(tmp_path: Path, killed: str) -> None:
    directory = tmp_path / "agent"
    async with agent(directory) as made:
        name = cgroups_name(str(directory))
        (supervisor,) = {hello.supervisor for hello in made.hellos}
        if killed == "both":
            process = holder(directory)
            assert process is not None
            os.kill(process, signal.SIGKILL)
        os.kill(int(supervisor.split(":")[2]), signal.SIGKILL)
        await asyncio.to_thread(end_agent, directory, wipe=True, grace_s=0.2)

        assert_no_survivors(directory)
        assert [*tmp_path.iterdir()] == []
        assert name not in {each.name for each in cgroups()}


@pytest.mark.parametrize("name", ["notes.txt", "muster.db", "agent-1/agent.lock"])
def test_directory_that_is_no_agents_is_not_wiped(tmp_path: Path, name: str) -> None:
    kept = tmp_path / "data" / name
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    for folder in (tmp_path / "data", kept.parent):
        folder.chmod(0o700)
    with pytest.raises(MusterError, match="is no agent's directory"):
        end_agent(tmp_path / "data", wipe=True)
    assert kept.read_text() == "mine"
    assert end_agent(tmp_path / "data") is False
    assert end_agent(tmp_path / "none", wipe=True) is False


def test_directory_of_an_agent_that_never_joined_is_wiped(tmp_path: Path) -> None:
    directory = tmp_path / "agent"
    directory.mkdir(mode=0o700)
    (directory / "agent.lock").touch()
    (directory / "logs").mkdir()
    assert end_agent(directory, wipe=True) is True
    assert not directory.exists()
