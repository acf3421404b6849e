"""States of a slice: machines that a provider makes and deletes together (source: Iris)."""

from enum import StrEnum

from muster.core.states.table import StateTable


class SliceStatus(StrEnum):
    """A deletion may be wished for in any state but the terminal ones. It is a field beside the
    state: the machines go on booting or working until they are gone, and until then the slice stays
    where it is."""

    REQUESTING = "REQUESTING"  # the provider was asked, and has not said that it has machines
    BOOTING = "BOOTING"  # the provider has its machines; none has joined
    INITIALIZING = "INITIALIZING"  # some have joined, or lack devices that were declared
    READY = "READY"
    FAILED = "FAILED"  # it went wrong, and its machines are gone
    TERMINATED = "TERMINATED"  # it was deleted, and its machines are gone


_S = SliceStatus

SLICE_TABLE: StateTable[SliceStatus] = StateTable(
    "slice",
    initial=_S.REQUESTING,
    terminal=frozenset({_S.FAILED, _S.TERMINATED}),
    allowed={
        (_S.REQUESTING, _S.BOOTING): "the provider has its machines",
        (_S.BOOTING, _S.INITIALIZING): "a machine has joined",
        (_S.INITIALIZING, _S.READY): "all have joined, with what was declared",
        (_S.REQUESTING, _S.FAILED): "refused, or nothing was made in time",
        (_S.BOOTING, _S.FAILED): "none joined in time; gone",
        (_S.INITIALIZING, _S.FAILED): "not all joined in time; gone",
        (_S.READY, _S.FAILED): "a machine was lost; gone",
        (_S.REQUESTING, _S.TERMINATED): "deleted",
        (_S.BOOTING, _S.TERMINATED): "deleted",
        (_S.INITIALIZING, _S.TERMINATED): "deleted",
        (_S.READY, _S.TERMINATED): "deleted",
    },
)
