"""An attacker's agent that tells of its own health: it harms itself alone."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.attacks.hostile_agent import hostile_agent
from tests.attacks.target import Target
from tests.patience import until_awaited
from tests.wire.test_checks import SIGHTINGS
from tests.wire.test_gateway import hello

from muster.core.health.counters import GpuMeans
from muster.core.health.remedy import Remedy
from muster.core.resources import MAX_DEVICES
from muster.wire.calls import (
    AgentTurnedAway,
)
from muster.wire.client import ControllerStream, Disconnected
from muster.wire.messages import (
    AgentMessage,
    HealthSeen,
    Heartbeat,
    Sighting,
)

FLOOD = 3_000
NAME = "mallorys-seer"


def everything() -> Iterator[HealthSeen]:
    """Sightings of all remedies, of the machine and of every device that any could have."""
    for seq in range(1, FLOOD + 1):
        remedy = list(Remedy)[seq % len(Remedy)]
        devices = tuple(range(MAX_DEVICES)) if seq % 2 else ()
        what = "\x1b[2J{agent} " * 20
        yield HealthSeen((Sighting(seq, remedy, what[:300], devices, True, "boot", 1.0),))


async def test_flood_of_sightings_is_about_the_sender_alone_and_holds_up_nobody(
    target: Target,
) -> None:
    with target.client() as admin:
        had = {each.id for each in admin.incidents("all")}
    async with hostile_agent(target, NAME) as agent:
        stream = agent.channel.connect(agent.credential)
        try:
            await stream.send(replace(hello(agent.id), name=NAME))
            began_s = time.monotonic()
            for seen in everything():
                await stream.send(seen)
            with target.client() as admin:
                found = await until_awaited(
                    lambda: [each for each in admin.incidents("all") if each.id not in had]
                )
                assert [each for each in found if each.agent != NAME] == []
            with target.client("ada") as ada:
                assert ada.job("long").name == "long"
            assert time.monotonic() < began_s + 60.0
        finally:
            stream.close()


async def _listen(stream: ControllerStream) -> None:
    async for _ in stream:
        pass


WRONG: dict[str, AgentMessage] = {
    **{
        each: HealthSeen(SIGHTINGS[each])
        for each in ("negative number", "many", "long sentence", "far device")
    },
    "counters that no gpu has": Heartbeat(1.0, gpus=(GpuMeans(0, busy=1e9),)),
    "counters of one gpu twice": Heartbeat(1.0, gpus=(GpuMeans(0), GpuMeans(0))),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_health_that_no_agent_may_tell_closes_its_stream(target: Target, wrong: str) -> None:
    async with hostile_agent(target, f"{NAME}-{wrong.replace(' ', '-')}") as agent:
        stream = agent.channel.connect(agent.credential)
        try:
            await stream.send(replace(hello(agent.id), name=agent.name))
            await stream.send(WRONG[wrong])
            with pytest.raises((Disconnected, AgentTurnedAway)):
                await asyncio.wait_for(_listen(stream), 20.0)
        finally:
            stream.close()
