"""Probes by agents, on their way from the desk to those who judge replicas (design: Deployments and
routes). These stand above agents, so they ask to be told."""

from collections.abc import Sequence
from typing import Protocol

from muster.control.engine.work import Work
from muster.core.serving.port_holders import PortSeen
from muster.core.serving.probes import ProbeResult
from muster.store.records import Agent


class ProbeListener(Protocol):
    """A listener to agents that probe."""

    def greeted(self, work: Work, agent: Agent) -> None:
        """A stream of the agent's begins, on which nothing was ordered yet."""

    def heard(self, work: Work, agent: Agent, results: Sequence[ProbeResult]) -> None:
        """The agent tells results."""

    def ports_seen(self, work: Work, agent: Agent, ports: Sequence[PortSeen]) -> None:
        """The agent tells who listens on ports of replicas."""


class ProbeReports:
    """The listeners to probes by agents; a part, made anew whenever the mirror is read."""

    def __init__(self) -> None:
        self._listeners: list[ProbeListener] = []

    def listen(self, listener: ProbeListener) -> None:
        self._listeners.append(listener)

    def greeted(self, work: Work, agent: Agent) -> None:
        for listener in self._listeners:
            listener.greeted(work, agent)

    def heard(self, work: Work, agent: Agent, results: Sequence[ProbeResult]) -> None:
        for listener in self._listeners:
            listener.heard(work, agent, results)

    def ports_seen(self, work: Work, agent: Agent, ports: Sequence[PortSeen]) -> None:
        for listener in self._listeners:
            listener.ports_seen(work, agent, ports)
