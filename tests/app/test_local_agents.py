"""The agents of a controller's own machine, each kept whatever becomes of the others."""

import asyncio
from pathlib import Path

import pytest

from muster.agent.config import AgentConfig
from muster.app.background_parts import BackgroundParts
from muster.app.kept_process import KeptProcess
from muster.app.local_agents import LocalAgents


def config(directory: Path, name: str) -> AgentConfig:
    return AgentConfig(controller="127.0.0.1:1", name=name, directory=directory / name)


async def test_agent_that_cannot_be_started_is_told_and_the_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    ended, others_run, tried_again = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def run_once(process: KeptProcess) -> str:
        started.append(process.name)
        if process.name == "agent agent-1":
            if started.count(process.name) == 3:
                tried_again.set()
            raise BlockingIOError("no process can be started")
        others_run.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "signal 9"

    async def nothing(_config: AgentConfig) -> None:
        return

    monkeypatch.setattr(KeptProcess, "run_once", run_once)
    beside = BackgroundParts(rest_s=0.0)
    agents = LocalAgents([config(tmp_path, f"agent-{n}") for n in (1, 2)], nothing, beside)
    async with asyncio.timeout(10), beside.running("local agents", agents.run):
        await others_run.wait()
        await tried_again.wait()
        assert not ended.is_set()
        assert started.count("agent agent-2") == 1
    assert ended.is_set()
