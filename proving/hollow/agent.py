"""A hollow agent: its process, and the stream to the controller that it keeps."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from muster.agent.backoff import Backoff
from muster.agent.conversation import SILENCE_LIMIT_HEARTBEATS, SILENCE_LIMIT_S
from muster.agent.health.sightings import PAUSE_S
from muster.core.health.remedy import Remedy
from muster.core.ids import AgentId
from muster.wire.messages import (
    ControllerMessage,
    Disk,
    Renew,
    Stop,
)
from proving.hollow.agent_twin import AgentTwin, Offer
from proving.hollow.gateway import DISMISSED, UNKNOWN
from proving.hollow.health import Health
from proving.hollow.machine import Machine
from proving.hollow.network import Stream, Way
from proving.hollow.route_probes import Answers, HollowRouteProbes
from proving.hollow.supervisor import HollowSupervisor
from proving.hollow.timeline import Appointment, Timeline

BATCH = 500


@dataclass(frozen=True, slots=True)
class Identity:
    """The id and the credential by which an agent is known; both are kept in its directory."""

    id: AgentId
    credential: str


Open = Callable[["HollowAgent"], Stream | None]
"""Opens a stream to the controller and shows the credential there; None if nobody listens."""


class HollowAgent(AgentTwin):
    """An agent that keeps a stream to the controller. Its directory, with identity, ports and
    journal, outlives its process.

    Args:
        open_stream: how it reaches the controller.
        join: asks for an identity, which is set in ``identity``, soon or never.
        group: the scaling group that it joins.
        token: with which it joins; None if an operator invites it.
        answers: to probes of replicas on its machine; without them it cannot probe.
    """

    def __init__(
        self,
        name: str,
        timeline: Timeline,
        machine: Machine,
        supervisor: HollowSupervisor,
        offer: Offer,
        rng: random.Random,
        open_stream: Open,
        join: Callable[["HollowAgent"], None],
        *,
        group: str = "default",
        token: str | None = None,
        answers: Answers | None = None,
    ) -> None:
        super().__init__(name, machine, supervisor, offer, group)
        self.token = token
        self.identity: Identity | None = None
        self.credential: str | None = None  # the credential with which it asks to join
        self.is_up = False
        self.is_scrapped = False
        self.stream: Stream | None = None
        self.health = Health(
            timeline, machine, rng, lambda: self.offer.devices, self.reboot, self.restart
        )
        if answers is not None:
            self.probes = HollowRouteProbes(timeline, answers, self._say)
        self._timeline = timeline
        self._rng = rng
        self._open = open_stream
        self._join = join
        self._backoff = Backoff(rng)
        self._next: Appointment | None = None
        self._beat: Appointment | None = None
        self._flushing = False
        self._disk_told = False
        self._heartbeat_s = 0.0
        self._heard_at = 0.0

    @property
    def is_quiet(self) -> bool:
        """Whether no message between the agent, its supervisor and the controller is on its way."""
        stream, supervisor = self.stream, self.supervisor
        return (
            stream is not None
            and all(pipe.is_clear for pipe in stream.pipes.values())
            and supervisor.agent is self
            and supervisor.is_quiet
        )

    # -- its process -----------------------------------------------------------------------------

    def start(self) -> None:
        if self.is_up or self.is_scrapped:
            return
        self.is_up = True
        self._backoff.reset()
        self._again(0.0)

    def kill(self) -> None:
        """SIGKILL; nothing of its memory stays, and its stream is reset."""
        self._die(Stream.reset)

    def reboot(self, takes_s: float) -> None:
        """The machine goes down without a word, and starts the agent when it is up again, which
        never happens by itself where that takes for ever."""
        self._go_down()
        if takes_s < math.inf:
            self._timeline.after(takes_s, self.start)

    def restart(self, takes_s: float) -> None:
        """The agent's process is killed, and started again later."""
        self.kill()
        self._timeline.after(takes_s, self.start)

    def scrap(self) -> None:
        """The machine goes down without a word, and does not come back by itself."""
        self._go_down()
        self.is_scrapped = True

    def restore(self) -> None:
        """A scrapped machine is up again, with its disk as it was."""
        self.is_scrapped = False
        self.start()

    def _go_down(self) -> None:
        self._die(Stream.cut)
        self.ports.clear()
        self.machine.reboot()
        self.supervisor.reboot()

    def lose_stream(self) -> None:
        """The stream breaks, which both ends know; the agent looks for a controller at once."""
        if self.stream is not None:
            self.stream.reset()

    def supervisor_died(self) -> None:
        """Look for the next one."""
        self._hang_up()
        self._again(self._backoff.next_s())

    def _again(self, delay_s: float) -> None:
        if self._next is not None:
            self._next.cancel()
        self._next = self._timeline.after(delay_s, self._connect)

    def _die(self, end: Callable[[Stream], None]) -> None:
        self.is_up = False
        self._leave(end)
        if self.supervisor.agent is self:
            self.supervisor.agent = None

    def _hang_up(self) -> None:
        self._leave(lambda stream: stream.close(Way.UP))

    def _leave(self, end: Callable[[Stream], None]) -> None:
        for appointment in (self._next, self._beat):
            if appointment is not None:
                appointment.cancel()
        if self.stream is not None:
            stream, self.stream = self.stream, None
            end(stream)

    # -- its stream ------------------------------------------------------------------------------

    def _connect(self) -> None:
        if not self.is_up or self.stream is not None:
            return
        if not self.supervisor.is_up or self.supervisor.is_frozen:
            self._again(self._backoff.next_s())
            return
        self.attach()
        if self.identity is None:
            self._join(self)
        stream = None if self.identity is None else self._open(self)
        if stream is None:
            self._again(self._backoff.next_s())
            return
        self.stream = stream
        stream.listen(
            Way.DOWN,
            lambda message: self._hear(stream, message),
            lambda why: self._closed(stream, why),
        )
        self._heard_at = self._timeline.clock.now()
        self._heartbeat_s = 0.0
        self._disk_told = self.disk_full
        assert self.identity is not None
        self._say(self.hello_as(self.identity.id))
        self.forget_stream()
        self._flush_soon()
        self.sightings.rewind()
        self._tell_sightings()
        self._watch()

    def _closed(self, stream: Stream, why: str) -> None:
        if stream is not self.stream:
            return
        self.stream = None
        if self._beat is not None:
            self._beat.cancel()
        if why in (DISMISSED, UNKNOWN):
            self._abandon()
            self.identity = self.credential = None
        self._again(self._backoff.next_s())

    def _abandon(self) -> None:
        """End everything that it holds; the controller knows nothing of it any more."""
        self.ports.clear()
        for held in self.supervisor.inventory():
            self.supervisor.stop(Stop(held.kernel, held.generation, 0.0, "this agent is no more"))

    def _say(self, message: object) -> None:
        if self.stream is not None:
            self.stream.send(Way.UP, message)

    def _watch(self) -> None:
        """Give up a controller that is silent, and ask for a renewal when one is due."""
        if self.stream is None:
            return
        beat_s = self._heartbeat_s or SILENCE_LIMIT_S
        limit_s = max(SILENCE_LIMIT_S, SILENCE_LIMIT_HEARTBEATS * self._heartbeat_s)
        if self._timeline.clock.now() >= self._heard_at + limit_s:
            stream, self.stream = self.stream, None
            stream.close(Way.UP)
            self._again(self._backoff.next_s())
            return
        if self._heartbeat_s:
            if self.disk_full != self._disk_told:
                self._disk_told = self.disk_full
                self._say(Disk(self.disk_full))
            self._say(self.heartbeat())
            self._tell_sightings()
        self._beat = self._timeline.after(beat_s, self._watch)

    # -- its health ------------------------------------------------------------------------------

    def sees(
        self,
        remedy: Remedy,
        what: str,
        devices: tuple[int, ...] = (),
        *,
        confirmed: bool = False,
    ) -> None:
        """It sees something that speaks against its own machine, such as an Xid."""
        self.sightings.add(
            remedy,
            what,
            devices=devices,
            confirmed=confirmed,
            boot_id=self.machine.boot_id,
            at=self.machine.time_s,
        )
        self._tell_sightings()

    def _tell_sightings(self) -> None:
        now_s = self._timeline.clock.now()
        if self.stream is not None and self.sightings.is_due(now_s):
            self._say(self.sightings.take(now_s))
            self._timeline.after(PAUSE_S, self._tell_sightings)

    # -- between controller and supervisor -------------------------------------------------------

    def has_news(self) -> None:
        self._flush_soon()

    def refused(self) -> None:
        """Hang up: both sides begin anew from the held kernels."""
        self._hang_up()
        self._again(self._backoff.next_s())

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._timeline.after(0.0, self._flush)

    def _flush(self) -> None:
        self._flushing = False
        while self.stream is not None and self.outbox:
            self._say(self.outbox.take(BATCH))

    def _hear(self, stream: Stream, message: ControllerMessage) -> None:
        if stream is not self.stream:
            return
        self._heard_at = self._timeline.clock.now()
        self._backoff.reset()
        self.hear(message)
        if isinstance(message, Renew) and message.heartbeat_s != self._heartbeat_s:
            self._heartbeat_s = message.heartbeat_s
            if self._beat is not None:
                self._beat.cancel()
            self._beat = self._timeline.after(message.heartbeat_s, self._watch)
