"""Attributes of a group's agents, as columns of codes, in which placement rules are looked up."""

from collections.abc import Mapping

import numpy as np

from muster.scheduling.cluster.columns import Ints

_FIRST_SLOTS = 16


class AttributeColumns:
    """For each attribute the agents' values as codes; agents are known by their slot.

    A value's code is its index in ``values``; the code -1 stands for an agent without the
    attribute.
    """

    def __init__(self) -> None:
        self._size = _FIRST_SLOTS
        self._codes: dict[str, Ints] = {}
        self._code_of: dict[str, dict[str, int]] = {}
        self._of_slot: dict[int, Mapping[str, str]] = {}

    def column(self, attribute: str, slots: int) -> tuple[Ints, tuple[str, ...]]:
        """The codes of the first ``slots`` slots, and the values for which they stand."""
        codes = self._codes.get(attribute)
        if codes is None:
            return np.full(slots, -1, np.int64), ()
        return codes[:slots], tuple(self._code_of[attribute])

    def put(self, slots: range, attributes: Mapping[str, str]) -> None:
        """Set the attributes of the agents in ``slots``, in place of former ones."""
        if slots.stop > self._size:
            self._size = max(2 * self._size, slots.stop)
            for attribute, codes in self._codes.items():
                more = np.full(self._size - codes.size, -1, np.int64)
                self._codes[attribute] = np.concatenate((codes, more))
        for slot in slots:
            for attribute in self._of_slot.pop(slot, {}).keys() - attributes.keys():
                self._codes[attribute][slot] = -1
        for attribute, value in attributes.items():
            if attribute not in self._codes:
                self._codes[attribute] = np.full(self._size, -1, np.int64)
                self._code_of[attribute] = {}
            known = self._code_of[attribute]
            code = known.setdefault(value, len(known))
            self._codes[attribute][slots.start : slots.stop] = code
        if attributes:
            self._of_slot.update(dict.fromkeys(slots, attributes))

    def copy(self) -> "AttributeColumns":
        twin = AttributeColumns()
        twin._size = self._size
        twin._codes = {attribute: codes.copy() for attribute, codes in self._codes.items()}
        twin._code_of = {attribute: dict(known) for attribute, known in self._code_of.items()}
        twin._of_slot = dict(self._of_slot)
        return twin
