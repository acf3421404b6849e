"""States of a task, with their numbers (source: Iris).

``FAILED`` and ``WORKER_FAILED`` end an *attempt* always, the *task* only when the budget is spent;
a task row that holds them is terminal (the retry goes straight back to PENDING in one transaction).
"""

from enum import StrEnum

from muster.core.states.table import StateTable


class TaskState(StrEnum):
    UNSPECIFIED = "UNSPECIFIED"
    PENDING = "PENDING"
    BUILDING = "BUILDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    WORKER_FAILED = "WORKER_FAILED"
    UNSCHEDULABLE = "UNSCHEDULABLE"
    ASSIGNED = "ASSIGNED"

    @property
    def number(self) -> int:
        """The value on the wire."""
        return NUMBERS[self]


NUMBERS = {state: number for number, state in enumerate(TaskState)}

COLOURS = {
    TaskState.UNSPECIFIED: "#57606a",
    TaskState.PENDING: "#9a6700",
    TaskState.ASSIGNED: "#bc4c00",
    TaskState.BUILDING: "#8250df",
    TaskState.RUNNING: "#0969da",
    TaskState.SUCCEEDED: "#1a7f37",
    TaskState.FAILED: "#cf222e",
    TaskState.KILLED: "#57606a",
    TaskState.WORKER_FAILED: "#8250df",
    TaskState.UNSCHEDULABLE: "#cf222e",
}

_T = TaskState
_ACTIVE = (_T.ASSIGNED, _T.BUILDING, _T.RUNNING)
ACTIVE = frozenset(_ACTIVE)

TASK_TABLE: StateTable[TaskState] = StateTable(
    "task",
    initial=_T.PENDING,
    terminal=frozenset(
        {_T.UNSPECIFIED, _T.SUCCEEDED, _T.FAILED, _T.KILLED, _T.WORKER_FAILED, _T.UNSCHEDULABLE}
    ),
    allowed={
        (_T.PENDING, _T.ASSIGNED): "dispatch to agent",
        (_T.ASSIGNED, _T.BUILDING): "agent builds",
        (_T.ASSIGNED, _T.RUNNING): "agent started it",
        (_T.BUILDING, _T.RUNNING): "build completed",
        **{(start, _T.PENDING): "retry" for start in _ACTIVE},
        **{(start, _T.SUCCEEDED): "exit code 0" for start in _ACTIVE},
        **{(start, _T.FAILED): "failed, budget exhausted" for start in _ACTIVE},
        **{(start, _T.WORKER_FAILED): "agent lost or gang failed" for start in _ACTIVE},
        (_T.PENDING, _T.FAILED): "failed, budget exhausted",
        (_T.PENDING, _T.WORKER_FAILED): "gang failed",
        **{(start, _T.KILLED): "cancel, cascade or timeout" for start in (_T.PENDING, *_ACTIVE)},
        **{(start, _T.UNSCHEDULABLE): "scheduling timeout" for start in (_T.PENDING, _T.ASSIGNED)},
    },
    words={
        _T.PENDING: "goes back to the queue",
        _T.ASSIGNED: "got a place",
        _T.BUILDING: "is being prepared",
        _T.RUNNING: "started",
        _T.SUCCEEDED: "succeeded",
        _T.FAILED: "failed",
        _T.KILLED: "was stopped",
        _T.WORKER_FAILED: "lost its machine",
        _T.UNSCHEDULABLE: "found no place",
    },
)
