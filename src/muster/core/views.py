"""The answers of the API: one model for each thing, shared by the server and the typed client.

Times are seconds since the epoch, amounts the canonical integers of ``core.resources``. A client
ignores keys that it does not know, so that a newer server can say more.

``msgspec.json`` writes views and checks them when they are read. They are no pydantic models,
because every command imports them, and pydantic takes as long to import as everything else
together.
"""

from enum import StrEnum
from typing import Any, dataclass_transform

import msgspec

from muster.core.errors import Problem
from muster.core.owner import Owner, Role
from muster.core.reasons import Reason
from muster.core.resources import Resources
from muster.core.states import (
    JOB_TABLE,
    KERNEL_TABLE,
    SESSION_TABLE,
    TASK_TABLE,
    AgentBar,
    AgentStatus,
    JobState,
    KernelStatus,
    SessionStatus,
    TaskState,
)

VIEW_KEY = "x-view"


class _Named(msgspec.StructMeta):
    """Makes the fields of every view keyword-only: structures do not inherit that option."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> Any:
        return super().__new__(cls, name, bases, namespace, kw_only=True, **options)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class View(msgspec.Struct, metaclass=_Named, frozen=True):
    """Base of every answer of the API; values never change afterwards."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> Any:
        """A schema for FastAPI, because endpoints name the views with which they answer; FastAPI
        neither reads nor writes views."""
        from pydantic_core import core_schema

        return core_schema.any_schema()

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: object, _handler: object) -> dict[str, str]:
        """A placeholder in the API's description, until the view's schema is filled in."""
        return {VIEW_KEY: cls.__name__}


class ErrorCode(StrEnum):
    """The kind of an error, for programs; the sentence beside it is for people."""

    INVALID = "invalid"  # 422, with problems
    TOO_LARGE = "too_large"  # 413
    UNAUTHENTICATED = "unauthenticated"  # 401
    FORBIDDEN = "forbidden"  # 403
    NOT_FOUND = "not_found"  # 404
    AMBIGUOUS = "ambiguous"  # 409
    CONFLICT = "conflict"  # 409
    BUSY = "busy"  # 429: the same request may pass later
    UNAVAILABLE = "unavailable"  # 503: the same request may pass later
    AGENT_UNREACHABLE = "agent_unreachable"  # 502
    REFUSED = "refused"  # 400: any other, as the sentence says
    INTERNAL = "internal"  # 500: a defect of Muster


class ProblemView(View):
    """One thing wrong with a spec: a dotted path, the value that stood there, the values that
    may."""

    field: str
    value: str
    expected: str

    @staticmethod
    def of(problem: Problem) -> "ProblemView":
        return ProblemView(field=problem.field, value=problem.value, expected=problem.expected)


class ErrorView(View):
    """Any answer that is not a success. ``error`` is a sentence for a person."""

    error: str
    code: ErrorCode
    problems: tuple[ProblemView, ...] = ()


class OwnerView(View):
    domain: str
    project: str
    user: str

    @staticmethod
    def of(owner: Owner) -> "OwnerView":
        return OwnerView(domain=owner.domain, project=owner.project, user=owner.user)

    def __str__(self) -> str:
        return f"{self.domain}/{self.project}/{self.user}"


class ReasonView(View):
    """A reason as a person reads it; ``kind`` is one of ``core.reasons.ReasonKind``."""

    code: str
    kind: str
    sentence: str
    remedy: str = ""

    @staticmethod
    def of(reason: Reason) -> "ReasonView":
        return ReasonView(
            code=reason.code, kind=reason.kind, sentence=reason.sentence(), remedy=reason.remedy()
        )


class ResourcesView(View):
    """Amounts: thousandths of processors, bytes, thousandths of GPUs and of named extras."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    gpu_milli: int = 0
    extra: dict[str, int] = {}

    @staticmethod
    def of(amount: Resources) -> "ResourcesView":
        return ResourcesView(
            cpu_milli=amount.cpu_milli,
            memory_bytes=amount.memory_bytes,
            disk_bytes=amount.disk_bytes,
            gpu_milli=amount.gpu_milli,
            extra=dict(amount.extra),
        )

    def resources(self) -> Resources:
        """The amounts as ``core.resources.Resources``, whose ``describe`` is meant for people."""
        return Resources.with_extra(
            self.cpu_milli, self.memory_bytes, self.disk_bytes, self.gpu_milli, self.extra
        )


class JobView(View):
    """A job. ``counts`` holds all of its tasks by state, without zeros.

    ``tasks_total`` is how many tasks it runs, ``task_count`` the number below which their indexes
    lie: it is larger where the job runs ``only`` some tasks, as a ``retry_of`` another job does.
    ``version`` is the value of ``since`` in a wait for the next change. ``exit_code`` is the code
    with which ``muster run`` would end; the client sets it for a job that has ended and was asked
    for alone."""

    id: str
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
    version: str = ""
    exit_code: int | None = None

    def __post_init__(self) -> None:
        if not self.version:
            version = job_version(self.state, self.counts)
            msgspec.structs.force_setattr(self, "version", version)

    @property
    def ended(self) -> bool:
        return self.state in JOB_TABLE.terminal


def job_version(state: JobState, counts: dict[TaskState, int]) -> str:
    """A text that changes whenever a job's state or counts do."""
    return "-".join([state, *(f"{each}.{counts[each]}" for each in TaskState if counts.get(each))])


class JobDetail(JobView):
    """``spec`` is what was submitted, in the form of ``JobSpec``; defaults are left out.
    ``retried_by`` are the jobs that ran tasks of it again, the newest first, if they are few."""

    spec: dict[str, Any]
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
    """A kernel; of a job's task it is one attempt. ``agent`` is the name of the machine."""

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

    @property
    def ended(self) -> bool:
        return self.status in KERNEL_TABLE.terminal


class TaskView(View):
    """One replica of a job; ``attempt`` counts from 1 and is 0 before the first."""

    job_id: str
    index: int
    state: TaskState
    state_changed_at: float
    attempt: int = 0
    failure_count: int = 0
    preemption_count: int = 0
    session_id: str | None = None
    kernel_id: str | None = None
    started_at: float | None = None
    finished_at: float | None = None
    exit_code: int | None = None
    reason: ReasonView | None = None

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
    """Tasks of a job that failed alike: so many ``tasks``, the first of them ``such_as``."""

    state: TaskState
    exit_code: int | None = None
    reason: ReasonView | None = None
    tasks: int
    such_as: tuple[int, ...]


class FailurePage(View):
    """A job's failed tasks, grouped by how they failed, the largest group first. ``others`` counts
    the tasks of the groups that are left out."""

    items: tuple[FailureView, ...]
    others: int = 0


class SessionView(View):
    """A session; ``job_id`` is None when it was handed in by itself."""

    id: str
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

    @property
    def ended(self) -> bool:
        return self.status in SESSION_TABLE.terminal


class SessionDetail(SessionView):
    """A session with its kernels. ``spec`` is in the form of ``SessionSpec``; None when the session
    is a job's."""

    kernels: tuple[KernelView, ...]
    spec: dict[str, Any] | None = None

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
    """What a cancel did. ``changed`` is false if the work had ended already; ``message`` says
    so."""

    id: str
    status: str
    changed: bool
    message: str


LOG_ATTEMPT_HEADER = "Muster-Log-Attempt"
"""The header that tells of which attempt an answer holds output."""
LOG_OFFSET_HEADER = "Muster-Log-Offset"
"""The header that tells where in the attempt's output, in bytes, the answer begins."""
LOG_END_HEADER = "Muster-Log-End"
"""The header whose value is a ``LogEnd``."""


class LogEnd(StrEnum):
    """Whether more output may follow an answer, as far as is known when the answer begins."""

    OPEN = "open"  # perhaps more of this attempt
    ATTEMPT = "attempt"  # nothing more of this attempt; perhaps another attempt
    ALL = "all"  # no more of any attempt


class HolderView(View):
    """A holder of a resource that work waits for: sessions that the caller may see, by the ``name``
    of their job or their own, or all sessions of others together.

    Args:
        amount: of the resource that they hold, in the unit that a person expects.
        sessions: how many sessions it stands for.
        owner: of the sessions, where they have a name.
        yours: whether the sessions are the caller's.
        since: when the first session was placed or began, in seconds since the epoch.
    """

    sessions: int
    amount: str = ""
    name: str | None = None
    owner: OwnerView | None = None
    yours: bool = False
    since: float | None = None


class HoldingView(View):
    """A resource that work waits for, and its holders: the largest first, the rest together.

    Args:
        resource: its name, such as "gpu".
        held, limit: how much of how much is held.
        agents: where the resource is room on machines, those nearest to taking the work.
        quota: where the resource is a quota, its name, such as "user default/research/ann".
    """

    resource: str
    held: str
    limit: str
    agents: tuple[str, ...] = ()
    quota: str | None = None
    holders: tuple[HolderView, ...] = ()


class WhyView(View):
    """Why work is in its state. ``verdict`` is a sentence, ``reasons`` are all reasons that hold.

    ``held`` lists the resources that it waits for and their holders, ``behind`` is the session
    ahead of it in the queue for which room is kept, if the work waits for that reason.

    ``placement`` is what ``scheduling.explain.Explanation`` says of the session that waits, with
    agents by name, and of the work of others counts and priorities only; None where placement is
    not the question.
    """

    subject: str
    status: str
    verdict: str
    reasons: tuple[ReasonView, ...] = ()
    placement: dict[str, Any] | None = None
    held: tuple[HoldingView, ...] = ()
    behind: HolderView | None = None


class PlanOutcome(StrEnum):
    """The fate of work, if it were handed in now."""

    STARTS = "starts"  # now
    DISPLACES = "displaces"  # now, once work of lower priority has made room
    WAITS = "waits"
    CANCELLED = "cancelled"  # accepted, and ended at once: its needs can no longer be met


class PlannedKernelView(View):
    """Where a kernel would go. ``index`` is the task's in a job, the kernel's in a session;
    ``agent`` is the name of the machine."""

    index: int
    agent: str
    devices: tuple[ShareView, ...] = ()


class VictimView(View):
    """Work that would make room: one session of the caller's with its ``name``, or all ``sessions``
    of others that have the same priority."""

    priority: int
    sessions: int
    kernels: int
    name: str | None = None


class PlanView(View):
    """The fate of work, if it were handed in now. ``verdict`` is a sentence.

    Args:
        sessions: how many are tried: one for each task of a job that is not a gang, up to a limit.
        starting: how many of them would start now.
        kernels: where they would go; only the first if they are many.
        reasons: all that hold up the first session that would not start.
        displaces: the work that would make room for it.
        expected_at: when it would start at the latest if all ends are as known, in seconds since
            the epoch; None where that is not known.
        placement: of the first session, as in ``WhyView``.
    """

    outcome: PlanOutcome
    verdict: str
    group: str
    sessions: int
    starting: int
    kernels: tuple[PlannedKernelView, ...] = ()
    reasons: tuple[ReasonView, ...] = ()
    displaces: tuple[VictimView, ...] = ()
    expected_at: float | None = None
    placement: dict[str, Any]


class HistoryView(View):
    """One thing that happened. Equal refusals in a row are one entry: ``times`` counts them.

    In an entry about a job's session, ``task_index`` and ``attempt`` say which attempt the session
    is, and ``kernels`` is more than 1 for a gang; ``agent`` has its first kernel.
    """

    seq: int
    entity: str
    phase: str
    from_status: str | None = None
    to_status: str
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


class DeviceView(View):
    """One GPU of an agent; ``free`` is the share of it that nobody holds."""

    index: int
    model: str
    uuid: str = ""
    memory_bytes: int = 0
    free: float = 1.0


class AgentView(View):
    """A machine. ``kernels`` are those that hold resources of it, ``ahead`` those in its backlog;
    ``seen_at`` is when it last spoke, ``connected`` whether the controller can reach it now,
    ``barred`` why it takes no new work, if it takes none, with ``bar_note`` in an operator's words.
    The kernels of a draining agent are stopped at ``leave_by``; an agent that is ``disk_full``
    takes no new work until it has room."""

    id: str
    name: str
    group: str
    status: AgentStatus
    status_changed_at: float
    version: str
    host: str
    capacity: ResourcesView
    free: ResourcesView
    held: ResourcesView
    devices: tuple[DeviceView, ...] = ()
    attributes: dict[str, str] = {}
    kernels: int = 0
    ahead: int = 0
    joined_at: float
    seen_at: float
    barred: AgentBar | None = None
    bar_note: str = ""
    leave_by: float | None = None
    disk_full: bool = False
    connected: bool = True
    reason: ReasonView | None = None


class AgentPage(View):
    """The agents that match the question, by name."""

    items: tuple[AgentView, ...]


class GroupView(View):
    """A scaling group: its policy in the form of ``ScalingGroup``, its agents, its queue.
    ``refused`` are the plug-ins of the policy that do not serve, and why."""

    name: str
    spec: dict[str, Any]
    agents: int = 0
    waiting: int = 0
    refused: tuple[ReasonView, ...] = ()


class GroupPage(View):
    """All scaling groups, by name."""

    items: tuple[GroupView, ...]


class LimitView(View):
    """A limit and its use, in canonical amounts or numbers of sessions; ``used`` is None where the
    limit holds for each of several owners."""

    resource: str
    used: int | None
    limit: int


class QuotaView(View):
    """The limits of one owner at one level (``core.specs.quota.QuotaSpec``).

    Args:
        level: domain, project or user.
        name: as the quota names its owner; with ``*`` it stands for several owners.
        of: the owner whose use is counted; None with ``*``, unless an owner asks whom the quota
            binds.
        limits: of the amounts that placed sessions hold together.
        sessions: how many may be placed at a time.
        pending_sessions: how many may wait.
        largest: the limit for one session, in canonical amounts.
    """

    level: str
    name: str
    of: str | None = None
    limits: tuple[LimitView, ...] = ()
    sessions: LimitView | None = None
    pending_sessions: LimitView | None = None
    largest: dict[str, int] = {}
    weight: float = 1.0


class QuotaPage(View):
    """All quotas for an admin, else the quotas that bind the caller; by level and name."""

    items: tuple[QuotaView, ...]


class DomainView(View):
    name: str
    created_at: float


class DomainPage(View):
    items: tuple[DomainView, ...]


class ProjectView(View):
    domain: str
    name: str
    created_at: float


class ProjectPage(View):
    items: tuple[ProjectView, ...]


class UserView(View):
    """Somebody who hands in work; work that names no project belongs to the first of ``projects``.
    ``warning`` tells an administrator who adds a user something to know of the cluster."""

    domain: str
    name: str
    projects: tuple[str, ...]
    created_at: float
    warning: str = ""


class UserPage(View):
    items: tuple[UserView, ...]


class TokenView(View):
    """An API token, without its secret. ``project`` is the only project that it is good for; None
    stands for all of its user's."""

    id: str
    name: str
    domain: str
    user: str
    project: str | None = None
    role: Role
    created_at: float
    expires_at: float | None = None
    expired: bool = False
    last_used_at: float | None = None


class TokenPage(View):
    """Tokens, oldest first."""

    items: tuple[TokenView, ...]


class NewTokenView(View):
    """A token and its ``secret``, which a client sends; it is told once and kept nowhere."""

    token: TokenView
    secret: str


class JoinTokenView(View):
    """A token with which agents join, without its secret.

    Args:
        agent: the only name that may join with it; None is any.
        group: the only scaling group that may be joined with it; None is any.
        uses_left: how many agents may still join with it; None is any number.
        good: whether an agent may still join with it.
    """

    id: str
    agent: str | None = None
    group: str | None = None
    uses_left: int | None = None
    good: bool = True
    made_by: str
    created_at: float
    expires_at: float | None = None


class JoinTokenPage(View):
    """Join tokens, oldest first."""

    items: tuple[JoinTokenView, ...]


class NewJoinTokenView(View):
    """A join token and its ``secret``, with which an agent joins; it is told once and kept nowhere.
    An agent on another machine finds the controller at ``agent_address``, host:port."""

    token: JoinTokenView
    secret: str
    agent_address: str = ""


class WhoamiView(View):
    """The identity that the controller sees in the caller's token.

    Args:
        project: of work that names none.
        projects: for which the caller may hand in work.
        token: the caller's.
    """

    domain: str
    user: str
    project: str
    projects: tuple[str, ...] = ()
    role: Role
    token: TokenView | None = None


class HealthView(View):
    """The controller's health; the only answer without a token. ``status`` is "ok", or "degraded"
    while nothing can be stored, for the ``reason``."""

    status: str
    version: str
    reason: str | None = None


class ClusterView(View):
    """The cluster as a whole; ``agents`` are by status, ``unauthenticated`` the requests without a
    good token since the controller started; the other counts are of live records."""

    id: str
    version: str
    now: float
    agents: dict[AgentStatus, int] = {}
    jobs: int = 0
    sessions: int = 0
    waiting: int = 0
    kernels: int = 0
    unauthenticated: int = 0


class EventView(View):
    """Something changed: ``kind`` is job, task, session or agent, ``status`` its new one. A task's
    ``id`` is the job's, a slash and its index. Admins hear of domains, projects, users and tokens
    too.

    Kind ``reset`` says that changes were missed, as at the start of a stream: read the state anew.
    """

    kind: str
    id: str = ""
    status: str = ""
