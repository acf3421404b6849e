"""States of a job's recovery: beside the job's own state, where the job opts in
(source: ECS GPU Recovery)."""

from enum import StrEnum

from muster.core.states.table import StateTable


class RecoveryStatus(StrEnum):
    IN_PROGRESS = "IN_PROGRESS"  # the job waits or runs, and no incident is open
    PENDING_HEALTHCHECK = "PENDING_HEALTHCHECK"  # a task failed; the attempt's machines are checked
    PENDING_RESTART = "PENDING_RESTART"  # a machine is faulty, and is being healed
    RESTARTING = "RESTARTING"  # machines are there; the job's tasks begin anew
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    USER_STOPPED = "USER_STOPPED"


_R = RecoveryStatus

RECOVERY_TABLE: StateTable[RecoveryStatus] = StateTable(
    "recovery",
    initial=_R.IN_PROGRESS,
    terminal=frozenset({_R.COMPLETE, _R.FAILED, _R.USER_STOPPED}),
    allowed={
        (_R.IN_PROGRESS, _R.PENDING_HEALTHCHECK): "a task failed, or a GPU of it",
        (_R.IN_PROGRESS, _R.COMPLETE): "the job succeeded",
        (_R.IN_PROGRESS, _R.USER_STOPPED): "stopped by a person",
        (_R.IN_PROGRESS, _R.FAILED): "the job failed by what no check covers",
        (_R.PENDING_HEALTHCHECK, _R.PENDING_RESTART): "a machine is faulty",
        (
            _R.PENDING_HEALTHCHECK,
            _R.IN_PROGRESS,
        ): "no fault, or a machine lost; a budget allows a try",
        (_R.PENDING_HEALTHCHECK, _R.FAILED): "all healthy, and no budget is left",
        (_R.PENDING_HEALTHCHECK, _R.USER_STOPPED): "stopped by a person",
        (_R.PENDING_RESTART, _R.RESTARTING): "its machines are healthy again, or replaced",
        (_R.PENDING_RESTART, _R.IN_PROGRESS): "given up for a task that the job can do without",
        (_R.PENDING_RESTART, _R.FAILED): "no restart is left, or no machine",
        (_R.PENDING_RESTART, _R.USER_STOPPED): "stopped by a person",
        (_R.RESTARTING, _R.IN_PROGRESS): "its tasks run again, or the job can do without them",
        (_R.RESTARTING, _R.FAILED): "its tasks could not be started",
        (_R.RESTARTING, _R.USER_STOPPED): "stopped by a person",
    },
    words={
        _R.IN_PROGRESS: "goes on",
        _R.PENDING_HEALTHCHECK: "has its machines checked",
        _R.PENDING_RESTART: "waits for a machine to heal",
        _R.RESTARTING: "is being restarted",
        _R.COMPLETE: "is over: the job succeeded",
        _R.FAILED: "is over: the job failed",
        _R.USER_STOPPED: "is over: the job was stopped",
    },
)
