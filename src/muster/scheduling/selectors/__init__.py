"""Which agent a kernel goes to (sokovan-scheduler, "Selectors")."""

from muster.scheduling.selectors.concentrated import Concentrated, fullest_devices
from muster.scheduling.selectors.dispersed import Dispersed
from muster.scheduling.selectors.round_robin import RoundRobin

__all__ = ["Concentrated", "Dispersed", "RoundRobin", "fullest_devices"]
