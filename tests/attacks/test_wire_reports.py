"""An attacker's agent that reports about kernels: its stream ends, and nobody waits for it."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest
from tests.attacks.hostile_agent import HostileAgent, hostile_agent
from tests.attacks.target import KERNELS, Target
from tests.wire.test_gateway import hello

from muster.core.ids import KernelId
from muster.wire.calls import (
    AgentTurnedAway,
)
from muster.wire.client import Disconnected
from muster.wire.messages import (
    KernelReport,
    ReportKind,
    Reports,
)

IN_ONE_MESSAGE = 5_000
FLOOD_S = 6.0
MOST_LOG_BYTES = 100_000
"""That the controller writes about one agent, however much that says."""


def kernels_of_ada(target: Target) -> list[KernelId]:
    with target.client("ada") as ada:
        details = [ada.task("long", index) for index in range(KERNELS)]
    return [KernelId(kernel.id) for detail in details for kernel in detail.attempts]


async def flood(agent: HostileAgent, kernels: list[KernelId]) -> None:
    """Report the end of these kernels without end, over as many streams as the controller takes."""
    reports = [
        KernelReport(kernels[n % len(kernels)], 0, ReportKind.ENDED, 1.0, exit_code=0)
        for n in range(IN_ONE_MESSAGE)
    ]
    while True:
        stream = agent.channel.connect(agent.credential)
        try:
            await stream.send(replace(hello(agent.id), name=agent.name))
            for seq in range(1, 1_000):
                await stream.send(Reports(seq * IN_ONE_MESSAGE, tuple(reports)))
        except (Disconnected, AgentTurnedAway):
            await asyncio.sleep(0.01)
        finally:
            stream.close()


@pytest.mark.parametrize("of", ["others", "nobody"])
async def test_agent_that_floods_reports_is_cut_off_and_delays_nobody(
    target: Target, of: str
) -> None:
    kernels = kernels_of_ada(target) if of == "others" else [KernelId("krn-nobodys")]
    before, log = len(target.probes()), target.cluster.home.log
    log_bytes = log.stat().st_size
    async with hostile_agent(target, f"mallorys-liar-{of}") as agent:
        with suppress(TimeoutError):
            async with asyncio.timeout(FLOOD_S):
                await flood(agent, kernels)
    target.assert_served(before)
    assert log.stat().st_size - log_bytes < MOST_LOG_BYTES
