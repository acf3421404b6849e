"""The lease counts from when the controller was told what it answers, not from its answer."""

import asyncio
from contextlib import suppress
from typing import cast

from muster.agent.conversation import Conversation
from muster.agent.kernels import Kernels
from muster.agent.outbox import Outbox
from muster.core.ids import AgentId, KernelId
from muster.core.resources import Resources
from muster.wire.client import ControllerStream, Disconnected
from muster.wire.messages import (
    Acknowledge,
    AgentMessage,
    ControllerMessage,
    Heartbeat,
    Hello,
    KernelReport,
    Renew,
    ReportKind,
    Reports,
    Welcome,
)

LEASE_S = 60.0
LATE_S = 0.2
HELLO = Hello(AgentId("agt-1"), "one", "default", "boot", "1", "host", Resources(), (), {}, ())


class FakeStream:
    """A controller's end: what the agent says, and when the test lets it be answered."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[AgentMessage] = asyncio.Queue()
        self.answers: asyncio.Queue[ControllerMessage | None] = asyncio.Queue()

    async def send(self, message: AgentMessage) -> None:
        await self.said.put(message)

    def __aiter__(self) -> "FakeStream":
        return self

    async def __anext__(self) -> ControllerMessage:
        message = await self.answers.get()
        if message is None:
            raise Disconnected("the test is over")
        return message


class FakeKernels:
    """Remembers the leases that the supervisor would be told."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.news = asyncio.Event()
        self.left_s: asyncio.Queue[float] = asyncio.Queue()

    def repeat_reports(self) -> None:
        pass

    async def obeyed(self) -> None:
        pass

    def acknowledge(self, seq: int) -> None:
        self.outbox.acknowledge(seq)

    def renew_lease(self, lease_s: float, left_s: float) -> None:
        assert lease_s == LEASE_S
        self.left_s.put_nowait(left_s)


async def test_lease_is_shorter_by_what_the_answer_to_a_heartbeat_took() -> None:
    stream, kernels = FakeStream(), FakeKernels()
    async with asyncio.timeout(10.0), asyncio.TaskGroup() as group:
        group.create_task(_talk(stream, kernels))
        assert isinstance(await stream.said.get(), Hello)
        await stream.answers.put(Welcome(LEASE_S, heartbeat_s=0.01))
        assert await kernels.left_s.get() <= LEASE_S
        assert isinstance(await stream.said.get(), Heartbeat)
        await asyncio.sleep(LATE_S)
        await stream.answers.put(Renew())
        assert await kernels.left_s.get() <= LEASE_S - LATE_S
        await stream.answers.put(None)


async def test_lease_is_shorter_by_what_the_acknowledgement_of_a_report_took() -> None:
    stream, kernels = FakeStream(), FakeKernels()
    async with asyncio.timeout(10.0), asyncio.TaskGroup() as group:
        group.create_task(_talk(stream, kernels))
        assert isinstance(await stream.said.get(), Hello)
        await stream.answers.put(Welcome(LEASE_S, heartbeat_s=9.0))
        await kernels.left_s.get()
        kernels.outbox.add(7, KernelReport(KernelId("krn-1"), 0, ReportKind.STARTED, at=0.0))
        kernels.news.set()
        assert isinstance(await stream.said.get(), Reports)
        await asyncio.sleep(LATE_S)
        await stream.answers.put(Renew())  # of no heartbeat: it says nothing of when it was due
        await stream.answers.put(Acknowledge(7))
        assert await kernels.left_s.get() <= LEASE_S - LATE_S
        await stream.answers.put(None)


async def _talk(stream: FakeStream, kernels: FakeKernels) -> None:
    conversation = Conversation(cast(ControllerStream, stream), cast(Kernels, kernels))
    with suppress(Disconnected):
        await conversation.run(HELLO)
