"""States of a pool."""

from enum import StrEnum

from muster.core.states.table import StateTable


class PoolStatus(StrEnum):
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"  # an operator said so: nothing is made; idle slices still go
    TRIPPED = "TRIPPED"  # so many machines are silent at once that nothing is made or deleted
    DELETING = "DELETING"  # its slices are being deleted
    DELETED = "DELETED"


_P = PoolStatus

POOL_TABLE: StateTable[PoolStatus] = StateTable(
    "pool",
    initial=_P.ACTIVE,
    terminal=frozenset({_P.DELETED}),
    allowed={
        (_P.ACTIVE, _P.PAUSED): "paused",
        (_P.PAUSED, _P.ACTIVE): "resumed",
        (_P.ACTIVE, _P.TRIPPED): "many machines are silent at once",
        (_P.PAUSED, _P.TRIPPED): "many machines are silent at once",
        (_P.TRIPPED, _P.ACTIVE): "resumed, or all machines are heard again",
        (_P.TRIPPED, _P.PAUSED): "all machines are heard again, and it was paused",
        (_P.ACTIVE, _P.DELETING): "to be deleted",
        (_P.PAUSED, _P.DELETING): "to be deleted",
        (_P.TRIPPED, _P.DELETING): "to be deleted",
        (_P.DELETING, _P.DELETED): "its last slice is gone",
    },
    words={
        _P.ACTIVE: "makes machines",
        _P.PAUSED: "was paused",
        _P.TRIPPED: "stands still: too many of its machines are silent",
        _P.DELETING: "is being deleted",
        _P.DELETED: "was deleted",
    },
)
