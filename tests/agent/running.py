"""Agents under test: the real daemon and the real supervisor, in a directory of their own."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

from tests.wire.controller import QUICK, TOKEN, Controller

from muster.agent.config import AgentConfig
from muster.agent.daemon import run
from muster.agent.supervisor.launch import connect


def config(made: Controller, directory: Path, **fields: object) -> AgentConfig:
    """Settings of an agent of this controller; small, so that tests are quick."""
    defaults: dict[str, object] = {"token": TOKEN, "gpus": "2xT4", "keepalive": QUICK}
    defaults["accounts"] = {"somebody": "root"}  # where this is root, the owner of all templates is
    return AgentConfig(directory, made.address, "a1", **(defaults | fields))  # type: ignore[arg-type]


@asynccontextmanager
async def running(
    made: Controller, directory: Path, **fields: object
) -> AsyncIterator[asyncio.Task[None]]:
    """An agent that has said Hello; its task, which is to end without an error."""
    stop = asyncio.Event()
    hellos = len(made.hellos)
    agent = asyncio.create_task(run(config(made, directory, **fields), stop, rng=random.Random(1)))
    greeted = asyncio.create_task(made.until(lambda: len(made.hellos) > hellos))
    await asyncio.wait((agent, greeted), return_when=asyncio.FIRST_COMPLETED)
    greeted.cancel()
    if agent.done():
        await agent
    try:
        yield agent
    finally:
        stop.set()
        await agent


def shut_down_supervisor(directory: Path) -> None:
    """End the supervisor on a directory, and all that it holds; wait until it is gone."""
    try:
        link = connect(directory)
    except (FileNotFoundError, ConnectionRefusedError):
        return
    link.settimeout(20)
    with closing(link), link.makefile("rwb") as lines:
        lines.write(b'{"op":"attach"}\n{"op":"shutdown","grace_s":0}\n')
        lines.flush()
        with suppress(ConnectionError):
            for line in lines:
                if events := json.loads(line).get("events"):  # it waits until all are known
                    lines.write(b'{"op":"ack","seq":%d}\n' % events[-1]["seq"])
                    lines.flush()
