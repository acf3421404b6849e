"""One stream with the controller: Hello, then reports and heartbeats out, commands in."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import assert_never

from muster.agent.health.counters import GpuCounters
from muster.agent.health.sightings import SightingBox
from muster.agent.kernels import Kernels
from muster.agent.port_watch import PortWatch
from muster.agent.removal_box import RemovalBox
from muster.agent.route_probes import RouteProbes
from muster.agent.supervisor import clock
from muster.core.serving.port_holders import PortOrders
from muster.wire.client import ControllerStream, Disconnected
from muster.wire.duplex import run_until_one_ends
from muster.wire.messages import (
    Acknowledge,
    AgentMessage,
    Commands,
    ControllerMessage,
    Disk,
    HealthNoted,
    Heartbeat,
    Hello,
    ProbeOrders,
    Renew,
)

BATCH_REPORTS = 500
"""Reports in one message, at most. Under load the supervisor already sends several events
together."""

SILENCE_LIMIT_S = 10.0
SILENCE_LIMIT_HEARTBEATS = 3
"""A controller that is silent for so many heartbeats, and for ``SILENCE_LIMIT_S``, is given up even
if its machine answers."""


class Conversation:
    """Carries the messages of one stream.

    Args:
        disk_is_full: called with each heartbeat; the controller is told when the answer changes.
        boot_began_s: when the machine's boot clock began, if that is not the operating system's.
        sightings: what was seen of the machine's health, to be told.
        counters: the means of its GPUs, which heartbeats tell.
        probes: of replicas on the machine; None if nobody is to order any.
        ports: at whose listeners is looked; None where the machine does not tell of them.
        removals: of files of ended kernels, to be told.
    """

    def __init__(
        self,
        stream: ControllerStream,
        kernels: Kernels,
        disk_is_full: Callable[[], bool],
        boot_began_s: float = 0.0,
        sightings: SightingBox | None = None,
        counters: GpuCounters | None = None,
        probes: RouteProbes | None = None,
        ports: PortWatch | None = None,
        removals: RemovalBox | None = None,
    ) -> None:
        self._stream = stream
        self._kernels = kernels
        self._disk_is_full = disk_is_full
        self._boot_began_s = boot_began_s
        self._sightings = SightingBox() if sightings is None else sightings
        self._counters = GpuCounters() if counters is None else counters
        self._probes = probes
        self._ports = ports
        self._removals = RemovalBox() if removals is None else removals
        self._probes_timer: asyncio.TimerHandle | None = None
        self._now_s: Callable[[], float] = asyncio.get_running_loop().time
        self._heard_at_s = self._now_s()
        self._disk_was_full = False
        self.heartbeat_s: float | None = None
        """Seconds between two heartbeats, as the controller asks for; None until it granted a
        lease."""
        self._heartbeat_due = False
        self._hears_health = False  # until the controller says that it does
        self._hears_removals = False  # likewise
        self._pace_changed = asyncio.Event()
        self.accepted = asyncio.Event()
        """Whether the controller has answered, and so accepted this stream as the agent's."""

    async def run(self, hello: Hello) -> None:
        """Talk until the stream breaks.

        Raises:
            Refused, Occupied: the controller does not want this agent.
            Disconnected: the stream is over, or the controller silent.
            MalformedMessage: the controller sent a message that this version does not understand.
        """
        self._disk_was_full = self._disk_is_full()
        await self._stream.send(
            replace(
                hello,
                probes=self._probes is not None,
                health_commands=self._probes is not None,
                ports=self._ports is not None,
                sent_s=self._boot_s(),
                time_s=time.time(),
                disk_full=self._disk_was_full,
            )
        )
        self._sightings.rewind()
        self._kernels.repeat_reports()
        try:
            await run_until_one_ends(
                self._listen(), self._speak(), self._keep_time(), self._look_at_ports()
            )
        finally:
            if self._probes_timer is not None:
                self._probes_timer.cancel()
            if self._probes is not None:
                self._probes.forget()
            if self._ports is not None:
                self._ports.forget()

    async def _listen(self) -> None:
        async for message in self._stream:
            if isinstance(message, Commands):
                await self._kernels.find_accounts(message.commands)
            self._hear(message)
            await self._kernels.obeyed()

    def _hear(self, message: ControllerMessage) -> None:
        self._heard_at_s = self._now_s()
        self.accepted.set()
        match message:
            case Commands():
                self._kernels.obey(message.commands)
            case Acknowledge():
                self._kernels.acknowledge(message.seq)
            case Renew():
                # Exactly what was sent comes back, so it is compared before it is converted.
                self._kernels.renew_lease(message, self._boot_began_s)
                heard_before = self._hears_health, self._hears_removals
                self._hears_health |= message.hears_health
                self._hears_removals |= message.hears_removals
                if (self._hears_health, self._hears_removals) != heard_before:
                    self._kernels.news.set()
                if message.heartbeat_s != self.heartbeat_s:
                    self.heartbeat_s = message.heartbeat_s
                    self._pace_changed.set()
            case HealthNoted():
                self._sightings.noted(message.seq)
            case ProbeOrders():
                if self._probes is not None:
                    self._probes.obey(message)
            case PortOrders():
                if self._ports is not None:
                    self._ports.obey(message)
            case unknown:
                assert_never(unknown)

    async def _speak(self) -> None:
        outbox, news = self._kernels.outbox, self._kernels.news
        while True:
            while not (
                outbox
                or self._heartbeat_due
                or self._is_health_due()
                or self._are_probes_due()
                or self._has_ports()
                or self._has_removals()
            ):
                news.clear()
                await news.wait()
            message: AgentMessage
            if self._heartbeat_due:  # before any report: heartbeats keep the kernels alive
                self._heartbeat_due = False
                if (full := self._disk_is_full()) != self._disk_was_full:
                    self._disk_was_full = full
                    await self._stream.send(Disk(full))
                renewed_s, gpus = self._kernels.renewed_s, self._counters.take()
                message = Heartbeat(self._boot_s(), renewed_s, time.time(), gpus)
            elif self._is_health_due():
                message = self._sightings.take(self._now_s())
            elif self._ports is not None and self._has_ports():
                message = self._ports.take()
            elif self._probes is not None and self._are_probes_due():
                message = self._probes.take(time.monotonic())
            elif outbox:
                message = outbox.take(BATCH_REPORTS)
            else:
                message = self._removals.take()
            await self._stream.send(message)

    def _is_health_due(self) -> bool:
        return self._hears_health and self._sightings.is_due(self._now_s())

    def _are_probes_due(self) -> bool:
        """Whether results of probes are to be told now; if later, it is news then."""
        wait_s = None if self._probes is None else self._probes.wait_s(time.monotonic())
        if wait_s and (self._probes_timer is None or self._probes_timer.cancelled()):
            self._probes_timer = asyncio.get_running_loop().call_later(wait_s, self._look_again)
        return wait_s == 0.0

    def _has_ports(self) -> bool:
        """Whether something is to be told of ports."""
        return self._ports is not None and self._ports.has_news

    def _has_removals(self) -> bool:
        """Whether removals are to be told, which have the time that reports leave."""
        return self._hears_removals and self._removals.has_news

    async def _look_at_ports(self) -> None:
        if self._ports is not None:
            await self._ports.run()
        await asyncio.Event().wait()

    def _look_again(self) -> None:
        self._probes_timer = None
        self._kernels.news.set()

    def _boot_s(self) -> float:
        return clock.now_s() - self._boot_began_s

    async def _keep_time(self) -> None:
        """Have heartbeats sent in time, and give up a silent controller.

        It is a task of its own, because a timeout in ``_speak`` would cost more for each batch than
        sending the batch.
        """
        while True:
            with suppress(TimeoutError):  # a shorter lease may end before the next one is due
                async with asyncio.timeout(self.heartbeat_s or SILENCE_LIMIT_S):
                    await self._pace_changed.wait()
            self._pace_changed.clear()
            limit_s = max(SILENCE_LIMIT_S, SILENCE_LIMIT_HEARTBEATS * (self.heartbeat_s or 0.0))
            if self._now_s() >= self._heard_at_s + limit_s:
                raise Disconnected(f"the controller has said nothing for {limit_s:g} s")
            if self.heartbeat_s is not None:
                self._heartbeat_due = True
                self._kernels.news.set()
