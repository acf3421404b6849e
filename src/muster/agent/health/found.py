"""The health checks that are installed: those that come along, and ``muster.health_checks``
plug-ins."""

from muster.agent.health.check import HealthCheck
from muster.core.plugins import Plugins

BUILTIN = {
    "bundled": "muster.agent.health.bundled:BundledCheck",
    "clock": "muster.agent.health.clock:ClockCheck",
    "dcgm": "muster.agent.health.dcgm:DcgmCheck",
    "disk": "muster.agent.health.disk:DiskCheck",
    "nvml": "muster.agent.health.nvml:NvmlCheck",
}
"""Modules are imported once their check is wanted."""
_CHECKS: Plugins[HealthCheck] = Plugins("check", "muster.health_checks", HealthCheck, BUILTIN)


def check_names() -> list[str]:
    """The names by which checks can be asked for."""
    return _CHECKS.names()


def check_class(name: str) -> type[HealthCheck]:
    """The check of this name.

    Raises:
        InvalidSpec: there is none, or it cannot be loaded.
    """
    return _CHECKS.named(name)
