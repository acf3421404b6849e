"""The answers of the API: one model for each thing, shared by the server and the typed client; a
module for each topic, so that a command imports only what it shows.

``views.pools`` is such a module, which is imported when it is first asked for.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.core.views import (
        accounts,
        cluster,
        deployments,
        health,
        notices,
        pools,
        recoveries,
        settings,
    )

__all__ = [
    "accounts",
    "cluster",
    "deployments",
    "health",
    "notices",
    "pools",
    "recoveries",
    "settings",
]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
