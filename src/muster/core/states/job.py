"""States of a job, derived from its tasks (design: Job derivation)."""

from enum import StrEnum

from muster.core.states.table import StateTable


class JobState(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    UNSCHEDULABLE = "UNSCHEDULABLE"


_J = JobState
_ENDS = (_J.SUCCEEDED, _J.FAILED, _J.KILLED, _J.UNSCHEDULABLE)

JOB_TABLE: StateTable[JobState] = StateTable(
    "job",
    initial=_J.PENDING,
    terminal=frozenset(_ENDS),
    allowed={
        (_J.PENDING, _J.RUNNING): "a task is active",
        **{(start, end): "derived" for start in (_J.PENDING, _J.RUNNING) for end in _ENDS},
    },
    words={
        _J.PENDING: "waits",
        _J.RUNNING: "runs",
        _J.SUCCEEDED: "succeeded",
        _J.FAILED: "failed",
        _J.KILLED: "was stopped",
        _J.UNSCHEDULABLE: "found no place",
    },
)
