"""The agents of a controller's own machine: started with it, started again when they die."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from muster.agent.config import AgentConfig
from muster.agent.identity import AGENT_LOG, LOCK_FILE
from muster.agent.supervisor import lock_file
from muster.app.agent_process import dump_config
from muster.app.background_parts import BackgroundParts
from muster.app.home import Home
from muster.app.kept_process import KeptProcess, stop

_LOCAL_NAME = re.compile(r"agent-[1-9][0-9]*")


def local_name(number: int) -> str:
    """The name of an agent that a controller starts itself; numbers begin at 1."""
    return f"agent-{number}"


def former_directories(home: Home, count: int) -> list[Path]:
    """Directories of agents that the home's controller once started, and that are not among the
    first ``count``."""
    now = {local_name(number) for number in range(1, count + 1)}
    return [
        directory
        for directory in home.agent_directories()
        if _LOCAL_NAME.fullmatch(directory.name) and directory.name not in now
    ]


def holder(directory: Path) -> int | None:
    """The process id of the agent that runs on ``directory``; None if none does."""
    return lock_file.holder_of(directory / LOCK_FILE)


class LocalAgents:
    """Keeps an agent's process alive for each configuration while ``run`` runs. One that cannot be
    kept, because no process can be started, say, is tried again, and the others are kept.

    Args:
        prepare: is called with an agent's configuration before each of its starts.
        beside: is told of failures.
    """

    def __init__(
        self,
        configs: Sequence[AgentConfig],
        prepare: Callable[[AgentConfig], Awaitable[None]],
        beside: BackgroundParts,
    ) -> None:
        self._beside = beside
        self._processes = [kept_agent(config, prepare) for config in configs]

    async def run(self) -> None:
        """Keep the agents until cancelled; then tell them to end. Their kernels run on."""
        async with asyncio.TaskGroup() as group:
            for process in self._processes:
                group.create_task(self._beside.keep(process.name, process.keep))


def kept_agent(
    config: AgentConfig, prepare: Callable[[AgentConfig], Awaitable[None]]
) -> KeptProcess:
    """The process of an agent; ``prepare`` is called with its configuration before each start."""

    async def settings() -> str:
        await prepare(config)
        return dump_config(config)

    return KeptProcess(
        f"agent {config.name}",
        "muster.app.agent_process",
        config.directory / LOCK_FILE,
        config.directory / AGENT_LOG,
        settings,
    )


async def stop_agent(directory: Path) -> None:
    """Tell the agent on ``directory`` to end, and kill it if it does not."""
    await stop(directory / LOCK_FILE)
