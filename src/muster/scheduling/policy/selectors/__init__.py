"""Selectors: the choice of a kernel's agent (source: Sokovan)."""

from muster.scheduling.policy.selectors.concentrated import Concentrated, fullest_devices
from muster.scheduling.policy.selectors.dispersed import Dispersed
from muster.scheduling.policy.selectors.fragmentation import Fragmentation
from muster.scheduling.policy.selectors.round_robin import RoundRobin

__all__ = ["Concentrated", "Dispersed", "Fragmentation", "RoundRobin", "fullest_devices"]
