"""The health checks that are installed: those that come along, and ``muster.health_checks``
plug-ins."""

import difflib
import importlib
from importlib.metadata import entry_points

from muster.agent.health.check import HealthCheck
from muster.core.errors import InvalidSpec, Problem

BUILTIN = {
    "bundled": "muster.agent.health.bundled:BundledCheck",
    "clock": "muster.agent.health.clock:ClockCheck",
    "dcgm": "muster.agent.health.dcgm:DcgmCheck",
    "disk": "muster.agent.health.disk:DiskCheck",
    "nvml": "muster.agent.health.nvml:NvmlCheck",
}
"""Modules are imported once their check is wanted."""
_GROUP = "muster.health_checks"


def check_names() -> list[str]:
    """The names by which checks can be asked for."""
    return sorted({*BUILTIN, *entry_points(group=_GROUP).names})


def check_class(name: str) -> type[HealthCheck]:
    """The check of this name.

    Raises:
        InvalidSpec: there is none, or it cannot be loaded.
    """
    found: object
    try:
        if name in BUILTIN:
            module, _, attribute = BUILTIN[name].partition(":")
            found = vars(importlib.import_module(module))[attribute]
        else:
            installed = entry_points(group=_GROUP)
            if name not in installed.names:
                expected = f"expected one of {', '.join(check_names())}{_nearest(name)}"
                raise _refused(name, expected)
            found = installed[name].load()
    except InvalidSpec:
        raise
    except Exception as error:  # a plug-in's module may raise anything
        raise _refused(name, f"cannot be loaded: {error}"[:300]) from error
    if not (isinstance(found, type) and issubclass(found, HealthCheck)):
        raise _refused(name, "is no check: expected a class derived from HealthCheck")
    return found


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name, check_names(), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _refused(name: str, expected: str) -> InvalidSpec:
    return InvalidSpec([Problem("check", repr(name), expected)])
