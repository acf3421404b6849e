"""Answers about jobs, their tasks, sessions, kernels, and the history of all of them."""

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Any

import msgspec

from muster.core.states import (
    JOB_TABLE,
    KERNEL_TABLE,
    SESSION_TABLE,
    TASK_TABLE,
    JobState,
    KernelStatus,
    SessionStatus,
    TaskState,
)
from muster.core.views.base import OwnerView, ReasonView, RecordView, View


class JobView(RecordView):
    """A job. ``counts`` holds all of its tasks by state, without zeros.

    ``tasks_total`` is how many tasks it runs, ``task_count`` the number below which their indexes
    lie: it is larger where the job runs ``only`` some tasks, as a ``retry_of`` another job does.
    ``version`` is the value of ``since`` in a wait for the next change. ``warnings``, in the answer
    to a submission, are the reasons for which it waits until another agent joins, and what of its
    spec is allowed and hardly meant. ``gpu_milli`` is in listings how many thousandths of GPUs each
    task asks for, of a job that has not ended.
    ``exit_code`` is the code with which ``muster run`` would end; the client sets it for a job that
    has ended and was asked for alone. ``remarks`` tell of ends of its tasks what their states do
    not. ``kernels_left``, of a job that has ended, are kernels whose processes may still run and
    which hold their room still: 0 in answers to a ``wait``. ``silence`` is in listings the reason
    that a machine of it is not heard."""

    name: str
    owner: OwnerView
    group: str
    state: JobState
    state_changed_at: float
    tasks_total: int
    task_count: int
    counts: dict[TaskState, int]
    submitted_at: float
    started_at: float | None = None
    finished_at: float | None = None
    reason: ReasonView | None = None
    retry_of: str | None = None
    remarks: tuple[ReasonView, ...] = ()
    warnings: tuple[ReasonView, ...] = ()
    version: str = ""
    gpu_milli: int = 0
    exit_code: int | None = None
    kernels_left: int = 0
    silence: ReasonView | None = None

    def __post_init__(self) -> None:
        if not self.version:
            version = job_version(self.state, self.counts)
            msgspec.structs.force_setattr(self, "version", version)

    @property
    def status(self) -> JobState:
        return self.state

    @property
    def ended(self) -> bool:
        return self.state in JOB_TABLE.terminal

    @property
    def standing(self) -> str:
        """How the job stands: while it lives what the furthest of its tasks do, STOPPING as long as
        processes of it are left, and by whom it was ended if not by itself."""
        if self.kernels_left:
            return WorkStanding.STOPPING
        if self.ended:
            return _ended_by(self.reason) if self.state is JobState.KILLED else self.state
        return standing_of_tasks(self.counts)


class WorkStanding(StrEnum):
    """How work stands, as people see it in lists, beside the states of the state machines: these
    tell what is decided, and not whether anything runs."""

    WAITING = "WAITING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"
    STOPPED = "STOPPED"


def standing_of_tasks(counts: Mapping[TaskState, int]) -> WorkStanding:
    """How a job stands that has not ended, by the numbers of its tasks: the state of those that
    have come furthest."""
    if counts.get(TaskState.RUNNING):
        return WorkStanding.RUNNING
    starts = counts.get(TaskState.ASSIGNED) or counts.get(TaskState.BUILDING)
    return WorkStanding.STARTING if starts else WorkStanding.WAITING


def standing_of_session(status: SessionStatus) -> WorkStanding:
    """How a session stands that has not ended, in the words for jobs."""
    return _OF_SESSION.get(status, WorkStanding.STARTING)


def _ended_by(reason: ReasonView | None) -> str:
    """The word for work that has ended for this reason."""
    return _words_by_reason().get(reason.code if reason is not None else "", WorkStanding.STOPPED)


@cache
def _words_by_reason() -> dict[str, str]:
    # Imported late: every command imports this module, and the catalogue of reasons is long.
    from muster.core.reasons import ReasonCode

    return {
        ReasonCode.CANCELLED: WorkStanding.CANCELLED,
        ReasonCode.TIMEOUT: WorkStanding.TIMED_OUT,
        ReasonCode.COMPLETED: WorkStanding.SUCCEEDED,
        ReasonCode.KERNEL_ENDED: WorkStanding.FAILED,
    }


def job_version(state: JobState, counts: dict[TaskState, int]) -> str:
    """A text that changes whenever a job's state or counts do."""
    return "-".join([state, *(f"{each}.{counts[each]}" for each in TaskState if counts.get(each))])


class WaitedView(View):
    """A record of which somebody waits: its id, its kind, and whether it is over."""

    id: str
    kind: str
    over: bool


class WaitView(View):
    """The records of which somebody waits, each once, in the order of the request; none is over
    where the wait ended before."""

    items: tuple[WaitedView, ...] = ()


class JobDetail(JobView):
    """``spec`` is what was submitted, with the priority that the job has now, in the form of
    ``JobSpec``; defaults are left out. ``spec_cut`` is why long values of it are missing, once they
    are no longer kept. ``retried_by`` are the jobs that ran tasks of it again, the newest first, if
    they are few."""

    spec: dict[str, Any]
    spec_cut: ReasonView | None = None
    retried_by: tuple[str, ...] = ()


class JobPage(View):
    """Jobs, newest first. ``next`` continues the listing as ``cursor``; None at its end."""

    items: tuple[JobView, ...]
    next: str | None = None


class ShareView(View):
    """A kernel's share of one device: 1.0 is the whole device."""

    index: int
    share: float


class KernelView(View):
    """A kernel; of a job's task it is one attempt. ``agent`` is the name of the machine, and
    ``result`` what a task with parameters wrote to $MUSTER_RESULT."""

    id: str
    session_id: str
    index: int
    task_index: int | None = None
    attempt: int = 0
    status: KernelStatus
    status_changed_at: float
    agent_id: str | None = None
    agent: str | None = None
    devices: tuple[ShareView, ...] = ()
    ports: tuple[int, ...] = ()
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: ReasonView | None = None
    result: str | None = None

    @property
    def ended(self) -> bool:
        return self.status in KERNEL_TABLE.terminal


class TaskView(View):
    """One replica of a job; ``attempt`` counts from 1 and is 0 before the first. ``state_number``
    is ``TaskState.number`` of the state. ``parameters`` are its values of the job's ``matrix``."""

    job_id: str
    index: int
    state: TaskState
    state_number: int = 0
    state_changed_at: float
    attempt: int = 0
    failure_count: int = 0
    preemption_count: int = 0
    timeout_count: int = 0
    session_id: str | None = None
    kernel_id: str | None = None
    started_at: float | None = None
    finished_at: float | None = None
    exit_code: int | None = None
    reason: ReasonView | None = None
    parameters: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "state_number", self.state.number)

    @property
    def ended(self) -> bool:
        return self.state in TASK_TABLE.terminal


class TaskDetail(TaskView):
    """``attempts`` from the first to the latest; the oldest are left out when they are many."""

    attempts: tuple[KernelView, ...]


class TaskPage(View):
    """Tasks by index. ``total`` counts all tasks that match the question, on this page or not."""

    items: tuple[TaskDetail, ...]
    total: int


class FailureView(View):
    """Tasks of a job that failed alike: so many ``tasks``, the first of them ``such_as``.
    ``parameters`` are the values that they all have, and not all tasks of the job."""

    state: TaskState
    exit_code: int | None = None
    reason: ReasonView | None = None
    tasks: int
    such_as: tuple[int, ...]
    parameters: Mapping[str, str] = {}


class FailurePage(View):
    """A job's failed tasks, grouped by how they failed, the largest group first. ``others`` counts
    the tasks of the groups that are left out."""

    items: tuple[FailureView, ...]
    others: int = 0


class SessionView(RecordView):
    """A session; ``job_id`` is None when it was handed in by itself. ``warnings``, in the answer to
    a submission, are the reasons for which it waits until another agent joins. ``gpu_milli`` is in
    listings how many thousandths of GPUs its kernels ask for together, if it has not ended, and
    ``silence`` the reason that a machine of it is not heard."""

    job_id: str | None = None
    name: str | None = None
    type: str
    owner: OwnerView
    group: str
    priority: int
    status: SessionStatus
    status_changed_at: float
    created_at: float
    queued_at: float
    tries: int = 0
    reschedules: int = 0
    started_at: float | None = None
    finished_at: float | None = None
    reason: ReasonView | None = None
    warnings: tuple[ReasonView, ...] = ()
    gpu_milli: int = 0
    silence: ReasonView | None = None

    @property
    def ended(self) -> bool:
        return self.status in SESSION_TABLE.terminal

    @property
    def standing(self) -> str:
        """How the session stands, in the words for jobs."""
        if self.status is SessionStatus.TERMINATED and self.reason is not None:
            return _ended_by(self.reason)
        return self.status if self.ended else standing_of_session(self.status)


_OF_SESSION: dict[SessionStatus, WorkStanding] = {
    SessionStatus.PENDING: WorkStanding.WAITING,
    SessionStatus.RUNNING: WorkStanding.RUNNING,
    SessionStatus.TERMINATING: WorkStanding.STOPPING,
}


class SessionDetail(SessionView):
    """A session with its kernels. ``spec`` is in the form of ``SessionSpec``; None when the session
    is a job's. ``spec_cut`` is why long values of it are missing, once they are no longer kept."""

    kernels: tuple[KernelView, ...]
    spec: dict[str, Any] | None = None
    spec_cut: ReasonView | None = None

    @property
    def exit_code(self) -> int | None:
        """The code that ``exit_codes.of_session`` gives; None before the session's end."""
        from muster.core.exit_codes import of_session

        return of_session(self) if self.ended else None


class SessionPage(View):
    """Sessions, newest first. ``next`` continues the listing as ``cursor``; None at its end."""

    items: tuple[SessionView, ...]
    next: str | None = None


class CancelView(View):
    """The effect of a cancel. ``changed`` is false if the work had ended already; ``message`` says
    so."""

    id: str
    status: str
    changed: bool
    message: str


class PriorityView(View):
    """The effect of a change of the priority of work, which is ``priority`` now. ``changed`` is
    false if it was that already; ``message`` says so."""

    id: str
    status: str
    priority: int
    changed: bool
    message: str


MAX_SHORT_OUTPUTS = 200
"""How many tasks one request for short outputs may name."""


class ShortOutputView(View):
    """All output that an attempt of a task has written until now; in JSON ``data`` is in base64."""

    task: int
    attempt: int
    data: bytes


class ShortOutputs(View):
    """The short ones among outputs that were asked for, as far as they can be had at once, by task.
    Others are read one by one."""

    items: tuple[ShortOutputView, ...]


LOG_ATTEMPT_HEADER = "Muster-Log-Attempt"
"""The header that tells of which attempt an answer holds output."""
LOG_OFFSET_HEADER = "Muster-Log-Offset"
"""The header that tells where in the attempt's output, in bytes, the answer begins."""
LOG_END_HEADER = "Muster-Log-End"
"""The header whose value is a ``LogEnd``."""
LOG_STREAM_HEADER = "Muster-Log-Stream"
"""The header whose value is ``STDERR`` where an answer holds that alone. Older servers do not know
it, and answer with all output."""
STDERR = "stderr"


class LogEnd(StrEnum):
    """Whether more output may follow an answer, as far as is known when the answer begins."""

    OPEN = "open"  # perhaps more of this attempt
    ATTEMPT = "attempt"  # nothing more of this attempt; perhaps another attempt
    ALL = "all"  # no more of any attempt


class HistoryView(View):
    """One thing that happened to the record ``entity``; ``kind`` is the name of its entity, such as
    ``job``. ``happened`` are words for the arrival in ``to_status``, empty where its name is all
    there is to say. Equal refusals in a row are one entry: ``times`` counts them.

    In an entry about a job's session, ``task_index`` and ``attempt`` say which attempt the session
    is, and ``kernels`` is more than 1 for a gang; ``agent`` has its first kernel.
    """

    seq: int
    entity: str
    kind: str = ""
    phase: str
    from_status: str | None = None
    to_status: str
    happened: str = ""
    result: str
    reasons: tuple[ReasonView, ...] = ()
    times: int = 1
    first_at: float
    last_at: float
    task_index: int | None = None
    attempt: int = 0
    kernels: int = 0
    agent: str | None = None


class HistoryPage(View):
    """The newest entries, in order of time. ``left_out`` says whether older ones exist."""

    items: tuple[HistoryView, ...]
    left_out: bool = False
