"""All kinds of reasons by their codes, and reasons as they are stored."""

import json
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from muster.core.reasons import (
    of_agents,
    of_demand,
    of_dependencies,
    of_deployments,
    of_files,
    of_groups,
    of_health,
    of_kernels,
    of_machines,
    of_notices,
    of_pools,
    of_queue,
    of_quotas,
    of_recovery,
    of_routes,
    of_sessions,
    of_settings,
    of_slices,
    of_tasks,
)
from muster.core.reasons.codes import ReasonCode
from muster.core.reasons.reason import Reason, with_numbers

_MODULES = (
    of_agents,
    of_demand,
    of_dependencies,
    of_deployments,
    of_files,
    of_groups,
    of_health,
    of_kernels,
    of_machines,
    of_notices,
    of_pools,
    of_queue,
    of_quotas,
    of_recovery,
    of_routes,
    of_sessions,
    of_settings,
    of_slices,
    of_tasks,
)


def _kinds(module: ModuleType) -> Iterator[type[Reason]]:
    """The kinds of reasons that a module defines."""
    for each in vars(module).values():
        if isinstance(each, type) and issubclass(each, Reason) and each is not Reason:
            yield each


CATALOGUE: Mapping[ReasonCode, type[Reason]] = {
    kind.code: kind for module in _MODULES for kind in _kinds(module)
}


def reason_of(code: ReasonCode, numbers: Mapping[str, Any]) -> Reason:
    """The reason of this code with these numbers, by name (``with_numbers``)."""
    return with_numbers(CATALOGUE[code], numbers)


def reason_from_json(code: str, numbers: str) -> Reason:
    """A reason that ``Reason.to_json`` stored, of this version or another one.

    Raises:
        ValueError: the code is not known, or the numbers are no JSON.
    """
    return reason_of(ReasonCode(code), json.loads(numbers))
