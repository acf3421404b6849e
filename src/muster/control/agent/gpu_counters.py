"""The newest means of GPUs that agents told, on their way from the gateway to those who judge
them."""

from collections.abc import Mapping
from threading import Lock
from types import MappingProxyType

from muster.core.health.counters import GpuMeans
from muster.core.ids import AgentId

KEPT_S = 200.0
"""Seconds after which means are forgotten for which no newer ones came."""

Told = tuple[float, tuple[GpuMeans, ...]]
"""When an agent told its means, and the means."""


class GpuCounterBook:
    """The newest means of each agent; safe to use from any thread. No wake follows them, so that
    agents that tell more than they should cost nothing."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._told: dict[AgentId, Told] = {}

    def put(self, agent: AgentId, gpus: tuple[GpuMeans, ...], now: float) -> None:
        with self._lock:
            self._told[agent] = now, gpus

    def newest(self, now: float) -> Mapping[AgentId, Told]:
        """The means that are not too old; the others are forgotten."""
        with self._lock:
            recent = {id_: told for id_, told in self._told.items() if told[0] > now - KEPT_S}
            self._told = dict(recent)
        return MappingProxyType(recent)
