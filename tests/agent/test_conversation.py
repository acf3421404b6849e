"""A lease ends its term after the agent asked for it, however late the answer comes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import cast

import pytest

from muster.agent.conversation import Conversation
from muster.agent.health.counters import INTERVAL_S, GpuCounters
from muster.agent.health.sightings import SightingBox
from muster.agent.kernels import Kernels
from muster.agent.outbox import Outbox
from muster.agent.removal_box import AT_ONCE, RemovalBox
from muster.agent.route_probes import RouteProbes
from muster.agent.supervisor import clock
from muster.core.health.counters import GpuMeans
from muster.core.health.remedy import Remedy
from muster.core.ids import AgentId, KernelId
from muster.core.reasons.of_files import OutputWasRemoved
from muster.core.resources import Resources
from muster.core.serving.probes import ProbeOrder, ProbeResult, ProbeTarget
from muster.wire.client import ControllerStream, Disconnected
from muster.wire.messages import (
    AgentMessage,
    ControllerMessage,
    Disk,
    FileRemoval,
    FilesRemoved,
    HealthNoted,
    HealthSeen,
    Heartbeat,
    Hello,
    ProbeOrders,
    ProbesSeen,
    Renew,
)

HELLO = Hello(AgentId("agt-1"), "one", "default", "boot", "1", "host", Resources(), (), {}, ())
SELDOM_S = 600.0


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


class FakeLink:
    """Remembers what the supervisor is told of the lease."""

    def __init__(self) -> None:
        self.ends_s: asyncio.Queue[float] = asyncio.Queue()

    def renew_lease(self, until_s: float) -> None:
        self.ends_s.put_nowait(until_s)


class FakeKernels:
    """The real handling of renewals, without kernels."""

    renew_lease = Kernels.renew_lease

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.news = asyncio.Event()
        self.renewed_s = 0.0
        self._link = FakeLink()

    @property
    def ends_s(self) -> "asyncio.Queue[float]":
        return self._link.ends_s

    def repeat_reports(self) -> None:
        pass

    async def obeyed(self) -> None:
        pass


class FakeProbes:
    """Probes whose results the test makes."""

    def __init__(self) -> None:
        self.ordered: list[ProbeOrders] = []
        self.waits: list[ProbesSeen] = []
        self.wait_time_s = 0.0

    def obey(self, orders: ProbeOrders) -> None:
        self.ordered.append(orders)

    def wait_s(self, now_s: float) -> float | None:
        return self.wait_time_s if self.waits else None

    def take(self, now_s: float) -> ProbesSeen:
        return self.waits.pop()

    def forget(self) -> None:
        self.ordered.clear()


class Talk:
    """A conversation whose Hello was said."""

    def __init__(self, boot_began_s: float) -> None:
        self.stream, self.kernels = FakeStream(), FakeKernels()
        self.disk_full = False
        self.boot_began_s = boot_began_s
        self.sightings = SightingBox()
        self.counters = GpuCounters(lambda: self.now_s)
        self.probes = FakeProbes()
        self.removals = RemovalBox()
        self.now_s = 0.0

    async def run(self) -> None:
        conversation = Conversation(
            cast(ControllerStream, self.stream),
            cast(Kernels, self.kernels),
            lambda: self.disk_full,
            self.boot_began_s,
            self.sightings,
            self.counters,
            cast(RouteProbes, self.probes),
            removals=self.removals,
        )
        with suppress(Disconnected):
            await conversation.run(HELLO)

    async def heard(self) -> AgentMessage:
        return await self.stream.said.get()

    async def heartbeat(self) -> Heartbeat:
        said = await self.heard()
        assert isinstance(said, Heartbeat)
        return said

    async def renew(self, sent_s: float, lease_s: float, heartbeat_s: float = SELDOM_S) -> float:
        """When the lease ends by what the supervisor is told."""
        await self.stream.answers.put(Renew(sent_s, lease_s, heartbeat_s))
        return await self.kernels.ends_s.get()


@asynccontextmanager
async def talk(boot_began_s: float = 0.0) -> AsyncIterator[tuple[Talk, Hello]]:
    made = Talk(boot_began_s)
    async with asyncio.timeout(10.0), asyncio.TaskGroup() as group:
        group.create_task(made.run())
        hello = await made.heard()
        assert isinstance(hello, Hello)
        yield made, hello
        await made.stream.answers.put(None)


async def test_lease_ends_its_term_after_what_the_renewal_answers() -> None:
    async with talk() as (made, hello):
        assert await made.renew(hello.sent_s, 60.0) == hello.sent_s + 60.0
        beat = await made.heartbeat()
        assert beat.sent_s > hello.sent_s
        assert await made.renew(beat.sent_s, 60.0) == beat.sent_s + 60.0


async def test_shorter_term_takes_effect_with_the_next_renewal_which_is_asked_for_in_time() -> None:
    async with talk() as (made, hello):
        await made.renew(hello.sent_s, 600.0)
        first = await made.heartbeat()
        assert await made.renew(first.sent_s, 3.0, heartbeat_s=1.0) == first.sent_s + 3.0
        second = await made.heartbeat()  # at once, and not when the long lease wanted it
        assert second.renewed_s == first.sent_s


async def test_renewal_of_what_was_said_before_the_one_in_force_is_not_believed() -> None:
    async with talk() as (made, hello):
        await made.renew(hello.sent_s, 600.0)
        beat = await made.heartbeat()
        await made.renew(beat.sent_s, 3.0)
        await made.stream.answers.put(Renew(hello.sent_s, 6000.0, SELDOM_S))
        later = beat.sent_s + 1.0
        assert await made.renew(later, 3.0) == later + 3.0


async def test_part_of_a_machine_tells_its_own_boot_clock_and_its_lease_ends_by_the_systems() -> (
    None
):
    began_s = clock.now_s() - 5.0
    async with talk(began_s) as (made, hello):
        assert 5.0 <= hello.sent_s < 60.0
        assert await made.renew(hello.sent_s, 60.0) == pytest.approx(began_s + hello.sent_s + 60.0)
        beat = await made.heartbeat()
        assert hello.sent_s < beat.sent_s < 60.0
        assert beat.renewed_s == hello.sent_s, "exactly: the controller looks for it"


async def test_lease_without_an_end_is_passed_on() -> None:
    async with talk() as (made, hello):
        assert await made.renew(hello.sent_s, float("inf")) == float("inf")


async def test_disk_that_is_full_or_no_longer_is_told_with_the_next_heartbeat() -> None:
    async with talk() as (made, hello):
        assert not hello.disk_full
        made.disk_full = True
        await made.renew(hello.sent_s, 60.0)
        assert await made.heard() == Disk(full=True)
        await made.heartbeat()
        made.disk_full = False
        await made.renew(hello.sent_s, 60.0, heartbeat_s=1.0)
        assert await made.heard() == Disk(full=False)


async def test_means_of_gpus_go_with_one_heartbeat_once_an_interval_is_over() -> None:
    async with talk() as (made, hello):
        made.counters.add([GpuMeans(0, 90.0)], None)
        await made.renew(hello.sent_s, 60.0, 0.01)
        assert (await made.heartbeat()).gpus == ()
        made.now_s = INTERVAL_S
        told: list[GpuMeans] = []
        while not told:
            told += (await made.heartbeat()).gpus
        assert told == [GpuMeans(0, 90.0)]
        assert (await made.heartbeat()).gpus == ()


async def test_what_was_seen_of_the_machine_is_told_and_forgotten_once_it_is_noted() -> None:
    async with talk() as (made, hello):
        await made.renew(hello.sent_s, 60.0)
        await made.heartbeat()
        sighting = made.sightings.add(Remedy.RESET, "Xid 95", devices=(3,))
        made.kernels.news.set()
        assert await made.heard() == HealthSeen((sighting,))
        await made.stream.answers.put(HealthNoted(sighting.seq))
        await made.renew(hello.sent_s, 60.0, heartbeat_s=1.0)
        await made.heartbeat()
        assert not made.sightings.kept


async def test_sighting_that_nobody_noted_is_told_on_the_next_stream() -> None:
    async with talk() as (made, hello):
        await made.renew(hello.sent_s, 60.0)
        await made.heartbeat()
        sighting = made.sightings.add(Remedy.RESET, "Xid 95")
        made.kernels.news.set()
        assert await made.heard() == HealthSeen((sighting,))
    assert made.sightings.kept == (sighting,)


async def test_controller_that_knows_no_sightings_is_told_of_none() -> None:
    async with talk() as (made, hello):
        sighting = made.sightings.add(Remedy.RESET, "Xid 95")
        await made.stream.answers.put(Renew(hello.sent_s, 60.0, SELDOM_S, hears_health=False))
        await made.heartbeat()
        made.kernels.news.set()
        await made.stream.answers.put(Renew(hello.sent_s, 60.0, 2 * SELDOM_S, hears_health=False))
        await made.heartbeat()
    assert made.sightings.kept == (sighting,)


async def test_removals_are_told_once_and_to_a_controller_alone_that_hears_them() -> None:
    removal = FileRemoval(KernelId("krn-1"), 1, OutputWasRemoved())
    async with talk() as (made, hello):
        made.removals.add([removal] * (AT_ONCE + 1))
        await made.stream.answers.put(Renew(hello.sent_s, 60.0, SELDOM_S, hears_removals=False))
        await made.heartbeat()
        made.kernels.news.set()
        await made.renew(hello.sent_s, 60.0, heartbeat_s=1.0)
        told = [await made.heard() for _ in range(3)]
        assert FilesRemoved((removal,) * AT_ONCE) in told
        assert FilesRemoved((removal,)) in told
        await made.heartbeat()
    assert not made.removals.has_news


async def test_replicas_are_probed_as_ordered_for_as_long_as_the_stream_lasts() -> None:
    orders = ProbeOrders((ProbeOrder("rte-1", 1, ProbeTarget("", 80, 1.0, 1.0)),))
    seen = ProbesSeen((ProbeResult("rte-1", 1, True, 1),))
    async with talk() as (made, hello):
        assert hello.probes
        await made.stream.answers.put(orders)
        await made.renew(hello.sent_s, 60.0)
        await made.heartbeat()
        assert made.probes.ordered == [orders]
        made.probes.waits.append(seen)
        made.probes.wait_time_s = 0.05  # by then nothing else is new
        made.kernels.news.set()
        await asyncio.sleep(0.01)
        assert made.stream.said.empty()
        made.probes.wait_time_s = 0.0
        assert await made.heard() == seen
    assert made.probes.ordered == []
