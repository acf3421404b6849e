"""States of a session (source: Sokovan)."""

from enum import StrEnum

from muster.core.states.table import StateTable


class SessionStatus(StrEnum):
    PENDING = "PENDING"
    SCHEDULED = "SCHEDULED"
    PREPARING = "PREPARING"
    PREPARED = "PREPARED"
    CREATING = "CREATING"
    RUNNING = "RUNNING"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"
    CANCELLED = "CANCELLED"


_S = SessionStatus
PLACED_SESSION = (_S.SCHEDULED, _S.PREPARING, _S.PREPARED, _S.CREATING)
"""Statuses of a session that has its agents and does not run yet."""

SESSION_TABLE: StateTable[SessionStatus] = StateTable(
    "session",
    initial=_S.PENDING,
    terminal=frozenset({_S.TERMINATED, _S.CANCELLED}),
    allowed={
        (_S.PENDING, _S.SCHEDULED): "placed",
        (_S.PENDING, _S.CANCELLED): "cancel, expired or gave up",
        (_S.SCHEDULED, _S.PREPARING): "prepare",
        (_S.SCHEDULED, _S.PREPARED): "nothing to prepare",
        (_S.PREPARING, _S.PREPARED): "all kernels prepared",
        (_S.PREPARED, _S.CREATING): "start",
        (_S.CREATING, _S.RUNNING): "all kernels running",
        **{(start, _S.PENDING): "re-schedule" for start in PLACED_SESSION},
        **{(start, _S.TERMINATING): "terminate" for start in (*PLACED_SESSION, _S.RUNNING)},
        (_S.TERMINATING, _S.TERMINATED): "all kernels gone",
    },
    words={
        _S.PENDING: "goes back to the queue",
        _S.SCHEDULED: "got a place",
        _S.PREPARING: "is being prepared",
        _S.PREPARED: "is prepared",
        _S.CREATING: "is being started",
        _S.RUNNING: "started",
        _S.TERMINATING: "is being stopped",
        _S.TERMINATED: "ended",
        _S.CANCELLED: "ended without a start",
    },
)
