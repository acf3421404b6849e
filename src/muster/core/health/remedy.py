"""The remedies that faults of a machine call for (design: Machine health)."""

from collections.abc import Iterable
from enum import StrEnum


class Remedy(StrEnum):
    """The remedy that a fault calls for, the mildest first."""

    CHECK = "check"  # nobody knows: look closer
    RESET = "reset"
    REBOOT = "reboot"
    OPERATOR = "operator"  # hardware has to be replaced, or a person to decide


_MILDEST_FIRST = list(Remedy)


def strongest(remedies: Iterable[Remedy]) -> Remedy:
    """The strongest of these remedies; CHECK if there are none."""
    return max(remedies, key=_MILDEST_FIRST.index, default=Remedy.CHECK)
