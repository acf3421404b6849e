"""States of a kernel (source: Sokovan)."""

from enum import StrEnum

from muster.core.states.table import StateTable


class KernelStatus(StrEnum):
    PENDING = "PENDING"
    SCHEDULED = "SCHEDULED"
    PREPARING = "PREPARING"
    PULLING = "PULLING"
    PREPARED = "PREPARED"
    CREATING = "CREATING"
    RUNNING = "RUNNING"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"
    CANCELLED = "CANCELLED"
    ERROR = "ERROR"


_K = KernelStatus
_PLACED = (_K.SCHEDULED, _K.PREPARING, _K.PULLING, _K.PREPARED, _K.CREATING)
_ON_AGENT = (_K.PREPARING, _K.PULLING, _K.PREPARED, _K.CREATING, _K.RUNNING, _K.TERMINATING)

KERNEL_TABLE: StateTable[KernelStatus] = StateTable(
    "kernel",
    initial=_K.PENDING,
    terminal=frozenset({_K.TERMINATED, _K.CANCELLED, _K.ERROR}),
    allowed={
        (_K.PENDING, _K.SCHEDULED): "placed",
        (_K.PENDING, _K.CANCELLED): "session cancelled",
        (_K.SCHEDULED, _K.PREPARING): "prepare",
        (_K.PREPARING, _K.PULLING): "agent: pulling",
        (_K.PREPARING, _K.PREPARED): "agent: prepared",
        (_K.PULLING, _K.PREPARED): "agent: prepared",
        (_K.PREPARED, _K.CREATING): "start",
        (_K.CREATING, _K.RUNNING): "agent: started",
        **{(start, _K.PENDING): "session re-scheduled" for start in (*_PLACED, _K.RUNNING)},
        **{(start, _K.TERMINATING): "terminate" for start in (*_PLACED, _K.RUNNING)},
        **{(start, _K.TERMINATED): "agent: ended" for start in _ON_AGENT},
        (_K.SCHEDULED, _K.CANCELLED): "terminated before the agent had it",
        **{(start, _K.ERROR): "lost with its agent" for start in (_K.SCHEDULED, *_ON_AGENT)},
    },
)
