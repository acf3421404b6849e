"""The agents of a controller's own machine: started with it, started again when they die."""

import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from muster.agent.config import AgentConfig
from muster.agent.identity import LOCK_FILE
from muster.agent.supervisor import lock_file
from muster.app.agent_process import dump_config
from muster.app.beside import Beside
from muster.app.home import Home, open_log

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STOP_TIMEOUT_S = 20.0
"""Seconds that an agent may take to end: more than the start of a supervisor takes, because an
agent waits for that before it ends."""
LOOK_AGAIN_S = 1.0

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
    """Keeps an agent's process alive for each configuration while ``run`` runs.

    An agent that outlived its controller is left alone until it ends by itself. One that cannot be
    kept, because no process can be started, say, is tried again, and the others are kept.

    Args:
        prepare: is called with an agent's configuration before each of its starts.
        beside: is told of failures.
    """

    def __init__(
        self,
        configs: list[AgentConfig],
        prepare: Callable[[AgentConfig], Awaitable[None]],
        beside: Beside,
    ) -> None:
        self._configs = configs
        self._prepare = prepare
        self._beside = beside

    async def run(self) -> None:
        """Keep the agents until cancelled; then tell them to end. Their kernels run on."""
        async with asyncio.TaskGroup() as group:
            for config in self._configs:
                keeping = partial(self._keep, config)
                group.create_task(self._beside.keep(f"agent {config.name}", keeping))

    async def _keep(self, config: AgentConfig) -> None:
        pause_s = FIRST_PAUSE_S
        try:
            while True:
                if holder(config.directory) is not None:
                    await asyncio.sleep(LOOK_AGAIN_S)
                    continue
                await self._prepare(config)
                began_s = asyncio.get_running_loop().time()
                code = await self._run_once(config)
                ran_s = asyncio.get_running_loop().time() - began_s
                pause_s = FIRST_PAUSE_S if ran_s > LONGEST_PAUSE_S else pause_s
                log.warning("agent %s ended with %s, again in %.1f s", config.name, code, pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        finally:
            await stop_agent(config.directory)

    async def _run_once(self, config: AgentConfig) -> int:
        config.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_log(config.directory / "agent.log") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "muster.app.agent_process",
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            await process.communicate(dump_config(config).encode())
            return await process.wait()
        except asyncio.CancelledError:
            # An agent that has just begun holds no lock yet by which it could be found.
            await _end(process)
            raise


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


async def stop_agent(directory: Path) -> None:
    """Tell the agent on ``directory`` to end, and kill it if it does not."""
    process = holder(directory)
    if process is None:
        return
    for signum in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(process, signum)
        deadline = asyncio.get_running_loop().time() + STOP_TIMEOUT_S
        while asyncio.get_running_loop().time() < deadline:
            if holder(directory) is None:
                return
            await asyncio.sleep(0.02)
    log.error("agent on %s (process %s) does not end", directory, process)
