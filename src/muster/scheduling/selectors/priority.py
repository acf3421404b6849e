"""How full agents are when some resources matter more than others."""

from collections.abc import Sequence

import numpy as np

from muster.core.errors import MusterError
from muster.core.resources import GPU_WHOLE
from muster.scheduling.columns import Columns, Floats, Ints


def checked(resources: Sequence[str]) -> tuple[str, ...]:
    """
    Raises:
        MusterError: not a list of different names.
    """
    names = tuple(resources)
    if isinstance(resources, str) or not all(isinstance(name, str) for name in names):
        raise MusterError(f"resources is a list of names such as [gpu, cpu], not {resources!r}")
    if len(set(names)) < len(names):
        raise MusterError(f"resources names one twice: {', '.join(names)}")
    return names


def fullness(columns: Columns, resources: Sequence[str], candidates: Ints) -> Floats:
    """A whole number for each of ``candidates``, the larger the fuller: utilisation compared
    resource by resource, the first one that differs decides; equal where none does.

    What an agent does not have is not utilised.
    """
    if not resources or not candidates.size:
        return np.zeros(candidates.size)
    parts = np.array([_utilisation(columns, name, candidates) for name in resources])
    _, place = np.unique(parts, axis=1, return_inverse=True)
    return place.reshape(-1).astype(np.float64)


def _utilisation(columns: Columns, name: str, slots: Ints) -> Floats:
    """In steps of a millionth."""
    if name == "gpu":
        capacity = columns.device_count[slots] * GPU_WHOLE
        free = columns.device_free[slots].sum(axis=1)
    elif name in columns.dimensions:
        dimension = columns.dimensions.index(name)
        capacity, free = columns.capacity[slots, dimension], columns.free[slots, dimension]
    else:
        return np.zeros(slots.size)
    used = np.divide(capacity - free, capacity, out=np.zeros(slots.size), where=capacity > 0)
    rounded: Floats = np.round(used, 6)
    return rounded
