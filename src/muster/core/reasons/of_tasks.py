"""The texts of reasons of tasks, of the jobs that they make up, and of gangs."""

from collections.abc import Mapping

from muster.core.reasons.codes import ReasonCode
from muster.core.reasons.definition import OPERATOR as _O
from muster.core.reasons.definition import REQUEST as _R
from muster.core.reasons.definition import WAITING as _W
from muster.core.reasons.definition import Definition

OF_TASKS: Mapping[ReasonCode, Definition] = {
    ReasonCode.TASK_RETRY_BACKOFF: Definition(
        _W,
        "task {index} failed {failures:time}{agent:?, the last time on agent {agent}}, and is "
        "tried again in {seconds} s{others:?; {others:more task} wait to be tried again}",
        "Nothing: the wait doubles with each failure (`retry_backoff` of the job){agent:?; the "
        "next try prefers another agent}.",
    ),
    ReasonCode.NOT_YET_CANDIDATE: Definition(
        _W, "{waiting:task} of the job still to come, {candidates} in the queue"
    ),
    ReasonCode.TASK_STOPPED: Definition(_W, "task {index} was stopped{by:? by {by}}"),
    ReasonCode.COMPLETED: Definition(_W, "all kernels ended well"),
    ReasonCode.KERNEL_ENDED: Definition(_R, "kernel {index} ended: {how}"),
    ReasonCode.LEADER_ENDED: Definition(_W, "kernel {index}, its leader, ended well"),
    ReasonCode.OTHERS_RUN_ON: Definition(
        _R,
        "{ended} of its {kernels:kernel} ended well, kernel {index} first, {since_s:~} ago; it is "
        "over once {left:other} ended too",
        "With `leader: {index}` in its spec it is over once kernel {index} ends well, and the "
        "others are stopped then. `muster cancel` stops them now.",
    ),
    ReasonCode.JOB_FAILED: Definition(_R, "stopped because the job failed"),
    ReasonCode.JOB_ENDED: Definition(_W, "stopped because the job ended ({state})"),
    ReasonCode.TASKS_FAILED: Definition(
        _R,
        "{stopped:?stopped because }task {index}{others:? and {others} more} failed"
        "{none:? and none succeeded}"
        "{stopped:? and max_task_failures is {tolerated}}{sole:!; task {index}}: {how}",
        "{stopped:?--keep-going (keep_going: true) lets the others run on; }"
        "`muster retry {job} --failed` runs again what failed.",
    ),
    ReasonCode.TASK_LOST: Definition(
        _O, "task {index} lost its machine more often than its budget of {limit} allows"
    ),
    ReasonCode.TASKS_TOLERATED: Definition(_W, "{failed:failed task}, {tolerated} tolerated"),
    ReasonCode.PROCESSES_KILLED: Definition(
        _R,
        "processes of {tasks:task} were killed for lack of memory, though their program went on: "
        "{which}{more:? and {more} more}",
        "Look at what they left; ask for more memory.",
    ),
    ReasonCode.OUTPUT_LOST: Definition(
        _O,
        "output of {tasks:task} was lost because a disk was full: {which}{more:? and {more} more}",
        "Make room on the agents' disks.",
    ),
}
