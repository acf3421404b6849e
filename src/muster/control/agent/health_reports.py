"""Sightings by agents of their own health, on their way from the desk to those who judge it
(design: Machine health). These stand above agents, so they ask to be told."""

from collections.abc import Callable

from muster.control.engine.work import Work
from muster.store.records import Agent
from muster.wire.messages import HealthSeen

Hear = Callable[[Work, Agent, HealthSeen], None]


class HealthReports:
    """The listeners to what agents saw; a part, made anew whenever the mirror is read."""

    def __init__(self) -> None:
        self._listeners: list[Hear] = []

    def listen(self, hear: Hear) -> None:
        """Have ``hear`` told of everything that agents saw of their own health."""
        self._listeners.append(hear)

    def hear(self, work: Work, agent: Agent, seen: HealthSeen) -> None:
        for hear in self._listeners:
            hear(work, agent, seen)
