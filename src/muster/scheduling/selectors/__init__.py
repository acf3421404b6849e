"""Selectors: the choice of a kernel's agent (source: Sokovan)."""

from muster.scheduling.selectors.concentrated import Concentrated, fullest_devices
from muster.scheduling.selectors.dispersed import Dispersed
from muster.scheduling.selectors.fragmentation import Fragmentation
from muster.scheduling.selectors.round_robin import RoundRobin

__all__ = ["Concentrated", "Dispersed", "Fragmentation", "RoundRobin", "fullest_devices"]
