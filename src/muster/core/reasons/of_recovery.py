"""The texts of reasons of a job's recovery from broken machines.

A reason names a task, machines and what was found, and never the job, which may be of another.
"""

from collections.abc import Mapping

from muster.core.reasons.codes import ReasonCode
from muster.core.reasons.definition import OPERATOR as _O
from muster.core.reasons.definition import REQUEST as _R
from muster.core.reasons.definition import WAITING as _W
from muster.core.reasons.definition import Definition

_MACHINES = "agent {agent}{others:? and {others} more}"
_FOUND = "{found:?: {found}}"

OF_RECOVERY: Mapping[ReasonCode, Definition] = {
    ReasonCode.RECOVERY_CHECKS: Definition(
        _W,
        "task {index} failed: the check of {pending} of {agents:agent} is awaited, at most "
        "{in_s:~} more",
        "Nothing: it goes on once the check has ended. `muster why {agent}` tells how far it is.",
    ),
    ReasonCode.RECOVERY_HEALS: Definition(
        _W,
        f"waits until {_MACHINES} is healthy again, at most {{in_s:~}} more"
        f"{{replace:?, and for any other that fits from then on}}{_FOUND}",
        "Nothing: it is restarted by itself. `muster why {agent}` tells how far the healing is.",
    ),
    ReasonCode.RECOVERY_RESTARTS: Definition(
        _W,
        "is being restarted after a fault of a machine{restart:?: restart {restart}}"
        "{restart:!, which costs none} of at most {most:restart}",
    ),
    ReasonCode.RECOVERY_TASK_FAILED: Definition(
        _W, "task {index} failed ({how}): has {agents:agent} checked on which it ran"
    ),
    ReasonCode.RECOVERY_MACHINE_LEFT: Definition(
        _W, "task {index} had to leave its machine ({how}): has {agents:agent} checked"
    ),
    ReasonCode.RECOVERY_STOPS_ALL: Definition(
        _W,
        "stopped, because task {index} failed and all tasks of the job wait with it "
        "(recovery.scope); it begins again with them, and is charged nothing",
    ),
    ReasonCode.RECOVERY_FAULTY: Definition(
        _W, f"{_MACHINES} was found faulty, and is being healed{_FOUND}"
    ),
    ReasonCode.RECOVERY_HEALTHY: Definition(
        _W, "{agents:agent} found healthy: the retries of task {index} decide"
    ),
    ReasonCode.RECOVERY_UNCHECKED: Definition(
        _W,
        "{pending} of {agents:agent} could not be checked{timeout_s:? within {timeout_s:~}}, and "
        "no other is faulty: the retries of task {index} decide",
    ),
    ReasonCode.RECOVERY_MACHINE_LOST: Definition(
        _W,
        "task {index} is not to blame{how:?: a machine was lost ({how})}: the job goes on without "
        "a check, and its restarts are not charged",
    ),
    ReasonCode.RECOVERY_NO_FAULT: Definition(
        _R,
        "task {index} failed ({how}) with no retry left, and no fault was found on "
        "{agents:agent}{pending:?, {pending} of which could not be checked}",
        "Look at its output: no machine is known to be at fault. `max_retries_failure` "
        "grants further tries.",
    ),
    ReasonCode.RECOVERY_MACHINE_GONE: Definition(
        _W,
        f"{_MACHINES} was lost before it could be checked, and no fault was found: task {{index}} "
        "({how}) counts as lost with it",
    ),
    ReasonCode.RECOVERY_HEALED: Definition(_W, f"{_MACHINES} is healthy again"),
    ReasonCode.RECOVERY_REPLACED: Definition(
        _W,
        f"{_MACHINES} is not healthy again{{after_s:? after {{after_s:~}}}}: any other that fits "
        "is taken",
    ),
    ReasonCode.RECOVERY_RUNS_AGAIN: Definition(_W, "its tasks run again, after {after_s:~}"),
    ReasonCode.RECOVERY_USED_UP: Definition(
        _O,
        f"{_MACHINES} was found faulty, and it was restarted {{restarts:time}} before, as often as "
        f"it may{_FOUND}",
        "Look at the machine: `muster agents show {agent}`. `recovery.max_restarts` grants more "
        "restarts; `muster retry` runs it again.",
    ),
    ReasonCode.RECOVERY_NOT_RETURNED: Definition(
        _O,
        f"{_MACHINES} was not healthy again {{gone:?and is gone}}"
        f"{{gone:!within {{timeout_s:~}}}}, and it takes no other (recovery.replace){_FOUND}",
        "Look at the machine: `muster agents show {agent}`. With `recovery.replace: true` it would "
        "go on elsewhere; `muster retry` runs it again.",
    ),
    ReasonCode.RECOVERY_NOT_STARTED: Definition(
        _O,
        "its tasks could not be started again within {timeout_s:~}{how:?: {how}}",
        "Look at `muster agents`; `recovery.restart_timeout` grants more time, and `muster retry` "
        "runs it again.",
    ),
    ReasonCode.RECOVERY_JOB_ENDED: Definition(_W, "the job ended as {state}{how:?: {how}}"),
}
