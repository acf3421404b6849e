"""The fullness of agents when some resources matter more than others."""

import difflib
import weakref
from collections.abc import Sequence

import numpy as np

from muster.core.errors import MusterError
from muster.core.resources import EXTRA_NAME, GPU_WHOLE
from muster.scheduling.cluster.columns import Columns, Floats, Ints

_BUILT_IN = ("cpu", "memory", "disk", "gpu")
_BITS = 20  # of a utilisation in millionths
_STEPS = 1_000_000
_INT_BITS = 63
_FLOAT_BITS = 53


def checked(resources: Sequence[str]) -> tuple[str, ...]:
    """
    Raises:
        MusterError: ``resources`` is no list of different names, or has a name that no agent can
            ever have.
    """
    names = tuple(resources)
    if isinstance(resources, str) or not all(isinstance(name, str) for name in names):
        raise MusterError(f"resources is a list of names such as [gpu, cpu], not {resources!r}")
    if len(set(names)) < len(names):
        raise MusterError(f"resources names one twice: {', '.join(names)}")
    for name in names:
        meant = _meant(name)
        if meant is not None:
            raise MusterError(f"there is no resource {name!r}; did you mean {meant!r}?")
        if not EXTRA_NAME.fullmatch(name):
            raise MusterError(f"resources names {name!r}, which no agent can have")
    return names


def _meant(name: str) -> str | None:
    """The built-in resource of which the name seems a misspelling; agents may well have a tpu or
    vgpu."""
    word = name.lower().removesuffix("s")
    if name in _BUILT_IN or len(word) < 3:
        return None
    alike = difflib.get_close_matches(word, _BUILT_IN, 1, 0.8)
    begun = [each for each in _BUILT_IN if each.startswith(word)]
    return next((each for each in (*begun, *alike) if each[0] == word[0]), None)


class Fullness:
    """The fullness of agents, compared resource by resource: the first difference decides, else the
    smaller agent is the fuller.

    A resource that an agent lacks has utilisation 0. Utilisations are kept by slot for the columns
    that were asked about last, and computed anew where these have changed.
    """

    def __init__(self, resources: Sequence[str]) -> None:
        """
        Args:
            resources: at least one; all differ.
        """
        self._resources = resources
        self._columns: weakref.ref[Columns] | None = None
        self._capacity_version = -1
        self._mark = -1
        self._steps: Ints = np.zeros((0, 0), np.int64)  # resources × slots
        self._sizes: Floats = np.zeros(0)  # by slot, below 1
        self._size_bits = 0

    def of(self, columns: Columns, candidates: Ints) -> Floats:
        """A number for each of ``candidates``, the larger the fuller; with more than two resources
        only the order of the numbers has a meaning."""
        self._refresh(columns)
        first, *others = self._steps.take(candidates, axis=1)
        place, bits = first, _BITS
        for steps in others:
            if bits + _BITS > _INT_BITS:
                place, bits = _ranks(place), place.size.bit_length()
            place = (place << _BITS) | steps
            bits += _BITS
        if bits + self._size_bits > _FLOAT_BITS:
            place = _ranks(place)
        fullness: Floats = place - self._sizes.take(candidates)
        return fullness

    def _refresh(self, columns: Columns) -> None:
        """Take in all changes of the columns."""
        slots: Ints | None
        known = self._columns is not None and self._columns() is columns
        if known and self._capacity_version == columns.capacity_version:
            slots = columns.slots_changed_since(self._mark)
        else:
            slots = np.arange(columns.slots)
            self._columns = weakref.ref(columns)
            self._capacity_version = columns.capacity_version
            self._steps = np.zeros((len(self._resources), columns.slots), np.int64)
            sizes, rank = np.unique(columns.size, return_inverse=True)
            self._size_bits = sizes.size.bit_length()
            self._sizes = rank / 2**self._size_bits
        self._mark = columns.changes_mark
        if slots is not None:
            for steps, name in zip(self._steps, self._resources, strict=True):
                steps[slots] = _utilisation(columns, name, slots)


def _ranks(numbers: Ints) -> Ints:
    """The number of different smaller numbers, for each number."""
    order = numbers.argsort()
    ranks = np.empty_like(numbers)
    ranks[order] = np.cumsum(np.diff(numbers[order], prepend=numbers[order[:1]]) > 0)
    return ranks


def _utilisation(columns: Columns, name: str, slots: Ints) -> Ints:
    """The utilisation of a resource by slot, in millionths."""
    if name == "gpu":
        capacity = columns.device_count[slots] * GPU_WHOLE
        free = columns.device_free[slots].sum(axis=1)
    elif name in columns.dimensions:
        dimension = columns.dimensions.index(name)
        capacity, free = columns.capacity[slots, dimension], columns.free[slots, dimension]
    else:
        return np.zeros(slots.size, np.int64)
    used = np.divide(capacity - free, capacity, out=np.zeros(slots.size), where=capacity > 0)
    # Holdings may exceed the capacity: then nothing fits, and the fullness does not matter.
    steps: Ints = np.rint(used.clip(0.0, 1.0) * _STEPS).astype(np.int64)
    return steps
