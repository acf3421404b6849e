"""A hollow network: streams between agents and the controller that lag, stall, and break with
messages on their way.

A stream delivers in order both ways, as TCP does. Messages are out of order only where an agent has
several streams: an older stream may still deliver after a newer one has begun.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from proving.hollow.timeline import Timeline

KEEPALIVE_S = 20.0
"""How long the end of a stream takes to notice that the other one is gone without a word."""


@dataclass(frozen=True, slots=True)
class Weather:
    """How long messages take, in seconds; a part of them takes up to ``lag_s`` longer."""

    delay_s: float = 0.0005
    lagging: float = 0.0
    lag_s: float = 0.0


CALM = Weather()


class Way(StrEnum):
    """A direction of all streams of an agent."""

    UP = "up"  # to the controller
    DOWN = "down"


class Pipe:
    """One direction of a stream. ``closed`` is delivered after all messages, unless the pipe is
    cut."""

    def __init__(
        self, timeline: Timeline, rng: random.Random, weather: Callable[[], Weather]
    ) -> None:
        self._timeline = timeline
        self._rng = rng
        self._weather = weather
        self._last_at = 0.0
        self._on_way: deque[Callable[[], None]] = deque()
        self._arrived = 0  # the first messages, which wait for the stall to end
        self.is_stalled = False
        self._is_cut = False

    def send(self, deliver: Callable[[], None]) -> None:
        weather = self._weather()
        delay_s = weather.delay_s
        if weather.lagging and self._rng.random() < weather.lagging:
            delay_s += self._rng.uniform(0.0, weather.lag_s)
        self._last_at = max(self._last_at, self._timeline.clock.now() + delay_s)
        self._on_way.append(deliver)
        self._timeline.at(self._last_at, self._arrive)

    @property
    def is_clear(self) -> bool:
        """Whether nothing is on its way, and what is sent would arrive."""
        return not (self._on_way or self._is_cut)

    def stall(self) -> None:
        """Hold everything back until it goes on."""
        self.is_stalled = True

    def go_on(self) -> None:
        self.is_stalled = False
        arrived, self._arrived = self._arrived, 0
        for _ in range(arrived):
            self._timeline.after(0.0, self._arrive)

    def cut(self) -> None:
        """Lose everything that is on its way, and all that follows."""
        self._is_cut = True
        self._on_way.clear()

    def _arrive(self) -> None:
        if self._is_cut:
            return
        if self.is_stalled:
            self._arrived += 1
        elif self._on_way:
            self._on_way.popleft()()


class Stream:
    """A connection. Each end gets ``message`` and ``closed`` calls; an end that has closed the
    stream gets no further calls."""

    def __init__(
        self, timeline: Timeline, rng: random.Random, weather: Callable[[], Weather]
    ) -> None:
        self._timeline = timeline
        self.pipes = {way: Pipe(timeline, rng, weather) for way in Way}
        self._ends: dict[Way, tuple[Callable[[Any], None], Callable[[str], None]]] = {}
        self._is_deaf = dict.fromkeys(Way, False)  # the end that a way leads to

    def listen(
        self, way: Way, message: Callable[[Any], None], closed: Callable[[str], None]
    ) -> None:
        """Set the calls for the end to which this way leads."""
        self._ends[way] = message, closed

    def send(self, way: Way, message: object) -> None:
        self.pipes[way].send(lambda: self._deliver(way, message))

    def close(self, way: Way, why: str = "") -> None:
        """Be closed by the end at which this way begins. That end gets no further calls; the other
        end is told once all earlier messages have arrived."""
        self._is_deaf[_back(way)] = True
        self.pipes[way].send(lambda: self._tell_closed(way, why))

    def cut(self) -> None:
        """Everything on its way is lost; each end notices after a while."""
        for way, pipe in self.pipes.items():
            pipe.cut()
            self._timeline.after(KEEPALIVE_S, partial(self._tell_closed, way, "no answer"))

    def reset(self) -> None:
        """Everything on its way is lost, and both ends are told at once: a process was killed."""
        for way, pipe in self.pipes.items():
            pipe.cut()
            self._timeline.after(0.0, partial(self._tell_closed, way, "connection reset"))

    def _deliver(self, way: Way, message: object) -> None:
        if not self._is_deaf[way]:
            self._ends[way][0](message)

    def _tell_closed(self, way: Way, why: str) -> None:
        if not self._is_deaf[way]:
            self._is_deaf[way] = True
            self._ends[way][1](why)


def _back(way: Way) -> Way:
    return Way.DOWN if way is Way.UP else Way.UP
