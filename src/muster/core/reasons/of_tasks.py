"""Reasons of tasks, and of the jobs that they make up."""

from dataclasses import dataclass, field

from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.reason import PRIVATE, Reason
from muster.core.reasons.wording import and_more, counted, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRetryBackoff(Reason):
    code = ReasonCode.TASK_RETRY_BACKOFF
    kind = ReasonKind.WAITING

    index: int
    failures: int
    agent: str | None = None
    seconds: float
    others: int

    def sentence(self) -> str:
        said = f"task {self.index} failed {counted(self.failures, 'time')}"
        if self.agent:
            said += f", the last time on agent {self.agent}"
        said += f", and is tried again in {shown(self.seconds)} s"
        if self.others:
            said += f"; {counted(self.others, 'more task')} wait to be tried again"
        return said

    def remedy(self) -> str:
        said = "Nothing: the wait doubles with each failure (`retry_backoff` of the job)"
        if self.agent:
            said += "; the next try prefers another agent"
        return said + "."


@dataclass(frozen=True, slots=True, kw_only=True)
class NotYetCandidate(Reason):
    code = ReasonCode.NOT_YET_CANDIDATE
    kind = ReasonKind.WAITING

    waiting: int
    candidates: int
    most: int | None = None

    def sentence(self) -> str:
        said = (
            f"{counted(self.waiting, 'task')} of the job still to come, {self.candidates} in the "
        )
        said += "queue"
        if self.most:
            said += f"; at most {self.most} of its tasks hold room at a time"
        return said

    def remedy(self) -> str:
        return "The job says so itself: `max_running`." if self.most else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStopped(Reason):
    code = ReasonCode.TASK_STOPPED
    kind = ReasonKind.WAITING

    index: int
    by: str | None = None

    def sentence(self) -> str:
        said = f"task {self.index} was stopped"
        if self.by:
            said += f" by {self.by}"
        return said


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHeld(Reason):
    """A job of which no task begins until somebody releases it.

    Args:
        moment: since when, in UTC.
        by_admin: whether only an admin may release it.
    """

    code = ReasonCode.JOB_HELD
    kind = ReasonKind.REQUEST

    by: str
    moment: str
    by_admin: bool = False

    def sentence(self) -> str:
        return f"held by {self.by} since {self.moment}"

    def remedy(self) -> str:
        return "An admin has to release it." if self.by_admin else "`muster release` releases it."


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased(Reason):
    code = ReasonCode.JOB_RELEASED
    kind = ReasonKind.WAITING

    by: str

    def sentence(self) -> str:
        return f"released by {self.by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed(Reason):
    code = ReasonCode.JOB_FAILED
    kind = ReasonKind.REQUEST

    state: str | None = field(default=None, metadata=PRIVATE)

    def sentence(self) -> str:
        return "stopped because the job failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded(Reason):
    code = ReasonCode.JOB_ENDED
    kind = ReasonKind.WAITING

    state: str

    def sentence(self) -> str:
        return f"stopped because the job ended ({self.state})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksFailed(Reason):
    code = ReasonCode.TASKS_FAILED
    kind = ReasonKind.REQUEST

    failed: int = field(metadata=PRIVATE)
    others: int
    tolerated: int
    index: int
    how: str
    job: str
    stopped: bool | None = None
    none: bool | None = None
    sole: bool | None = None

    def sentence(self) -> str:
        said = ""
        if self.stopped:
            said += "stopped because "
        said += f"task {self.index}{and_more(self.others)} failed"
        if self.none:
            said += " and none succeeded"
        if self.stopped:
            said += f" and max_task_failures is {self.tolerated}"
        if not self.sole:
            said += f"; task {self.index}"
        return said + f": {self.how}"

    def remedy(self) -> str:
        said = ""
        if self.stopped:
            said += "--keep-going (keep_going: true) lets the others run on; "
        return said + f"`muster retry {self.job} --failed` runs again what failed."


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLost(Reason):
    code = ReasonCode.TASK_LOST
    kind = ReasonKind.OPERATOR

    index: int
    limit: int

    def sentence(self) -> str:
        return (
            f"task {self.index} lost its machine more often than its budget of {self.limit} allows"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksTolerated(Reason):
    code = ReasonCode.TASKS_TOLERATED
    kind = ReasonKind.WAITING

    failed: int
    tolerated: int

    def sentence(self) -> str:
        return f"{counted(self.failed, 'failed task')}, {self.tolerated} tolerated"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnoughSucceeded(Reason):
    code = ReasonCode.ENOUGH_SUCCEEDED
    kind = ReasonKind.WAITING

    succeeded: int
    enough: int

    def sentence(self) -> str:
        said = f"{counted(self.succeeded, 'task')} succeeded"
        return f"{said}, which is enough (stop_when: {self.enough}); the others were stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessesKilled(Reason):
    code = ReasonCode.PROCESSES_KILLED
    kind = ReasonKind.REQUEST

    tasks: int
    which: str
    more: int

    def sentence(self) -> str:
        return (
            f"processes of {counted(self.tasks, 'task')} were killed for lack of memory, though "
            f"their program went on: {self.which}{and_more(self.more)}"
        )

    def remedy(self) -> str:
        return "Look at what they left; ask for more memory."


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLost(Reason):
    code = ReasonCode.OUTPUT_LOST
    kind = ReasonKind.OPERATOR

    tasks: int
    which: str
    more: int

    def sentence(self) -> str:
        return (
            f"output of {counted(self.tasks, 'task')} was lost because a disk was full: "
            f"{self.which}{and_more(self.more)}"
        )

    def remedy(self) -> str:
        return "Make room on the agents' disks."
