"""The remedies that faults call for (design: Machine health)."""

from collections.abc import Mapping
from enum import StrEnum

from muster.core.health.verdict import Finding, Severity
from muster.core.health.xid_catalogue import XidAction


class Remedy(StrEnum):
    """The remedy that a fault calls for, from the mildest to the strongest."""

    CHECK = "check"  # nobody knows: look closer
    RESET = "reset"
    REBOOT = "reboot"
    OPERATOR = "operator"  # hardware has to be replaced, or a person to decide


OF_ACTION: Mapping[XidAction, Remedy] = {
    XidAction.CHECK: Remedy.CHECK,
    XidAction.RESET: Remedy.RESET,
    XidAction.REBOOT: Remedy.REBOOT,
    XidAction.OPERATOR: Remedy.OPERATOR,
}
"""The remedies by the actions that ask for one; what is ignored, and what is the application's own
affair, asks for none."""

_OF_NVML: Mapping[str, Remedy] = {
    "ecc": Remedy.RESET,
    "device": Remedy.RESET,
    "row remapping": Remedy.OPERATOR,  # no row is left: the GPU has to be replaced
    "retired pages": Remedy.REBOOT,
    "count": Remedy.REBOOT,
}
"""The remedies by the tests of the check ``nvml``. Where a reset fails, a reboot follows anyway."""


def remedy_of(finding: Finding, named: XidAction | None = None) -> Remedy:
    """The remedy that a finding of the check ``nvml`` calls for; any other one asks for a closer
    look.

    Args:
        named: the action that the driver itself names for the GPU, which outranks all else.
    """
    if named is not None and (own := OF_ACTION.get(named)) is not None:
        return own
    if finding.severity is not Severity.FAULT:
        return Remedy.CHECK
    return _OF_NVML.get(finding.test, Remedy.CHECK)
