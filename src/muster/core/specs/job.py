"""A job as people write it (design: Budgets)."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    InstanceOf,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from muster.core.errors import Problem
from muster.core.specs.amounts import (
    Duration,
    Flag,
    Moment,
    Name,
    OwnerName,
    PositiveDuration,
    Whole,
)
from muster.core.specs.notify import Channels
from muster.core.specs.placement import ANYWHERE, Dependencies, PlacementSpec
from muster.core.specs.recovery import Recovery, RecoveryScope
from muster.core.specs.session import MAX_GANG, Process, like_an_id
from muster.core.specs.work import Priority
from muster.core.task_ranges import EXPECTED_RANGES, TaskRanges

MAX_TASKS = 10_000_000
MAX_BACKOFF_S = 7 * 86_400.0


class OnTimeout(StrEnum):
    """The consequence for a task whose attempt was stopped at its time limit."""

    KILL = "kill"
    RETRY = "retry"


def _task_ranges(value: Any) -> Any:
    if value is None or isinstance(value, TaskRanges):
        return value
    if isinstance(value, list):
        value = ",".join(map(str, value))
    elif isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ValueError(f"expected {EXPECTED_RANGES}")
    return TaskRanges.parse(value)


Only = Annotated[
    InstanceOf[TaskRanges],
    PlainSerializer(str),
    WithJsonSchema({"type": "string"}),
]


class JobSpec(Process):
    """Batch work: ``tasks`` replicas of one process, each with retry budgets of its own.

    Args:
        name: the job's name; made from its program's when left out.
        group: the scaling group whose agents it may use.
        project: the owner's project for which it counts; the owner's first when left out.
        tasks: number of tasks; each knows its index by MUSTER_TASK_INDEX.
        only: the tasks that are run, as "3,17,40-45", or "0-100:25" for every 25th of them; all
            when left out. Their indexes and MUSTER_TASK_COUNT do not change.
        coscheduled: one gang: the tasks start together, with ranks and an address to meet at.
        leader: the task of a gang whose good end is the gang's: the others are stopped then, and
            have succeeded. Without one a gang is over once all of its tasks have ended well.
        max_retries_failure: retries of a task that exited with an error.
        max_retries_preemption: retries of a task that lost its machine.
        retry_backoff: wait before a task that failed is tried again; doubles with each further
            failure. Left out: none before the first retry, 1 s before the second. 0 is no wait.
        max_retry_backoff: the longest such wait, unless `retry_backoff` is longer.
        max_task_failures: tasks that may fail for good; the next one that does fails the job and
            stops the others.
        keep_going: the other tasks run on whatever becomes of one; how the job ended is derived
            once all of its tasks have ended.
        timeout: longest run of one attempt; past it the attempt is stopped, with `grace` to save
            its work.
        on_timeout: `kill`: the task is KILLED then; `retry`: it is tried again, to go on with what
            it saved.
        max_retries_timeout: retries of a task that was stopped at its time limit.
        scheduling_timeout: longest wait for a place, from when the job could first start; past it
            waiting tasks are UNSCHEDULABLE, and the job with them.
        placement: the agents for its tasks.
        after: other work, and the states that it must reach before a task starts.
        not_before: the earliest start.
        priority: higher goes first.
        notify: channels that are told of its end, as a list of URLs, or of {url: URL, on: failure}.
        recovery: `true` or fields: a failed task has its machines checked, a faulty machine is
            healed, and the job goes on.
    """

    kind: Literal["job"] = "job"
    name: Name | None = None
    project: OwnerName | None = None
    group: Name = "default"
    tasks: Annotated[Whole, Field(ge=1, le=MAX_TASKS)] = 1
    only: Annotated[Only | None, BeforeValidator(_task_ranges)] = None
    coscheduled: Flag = False
    leader: Annotated[Whole, Field(ge=0)] | None = None
    max_retries_failure: Annotated[Whole, Field(ge=0, le=10_000)] = 0
    max_retries_preemption: Annotated[Whole, Field(ge=0, le=10_000)] = 100
    retry_backoff: Annotated[Duration, Field(ge=0, le=MAX_BACKOFF_S)] | None = None
    max_retry_backoff: Annotated[PositiveDuration, Field(le=MAX_BACKOFF_S)] = 60.0
    max_task_failures: Annotated[Whole, Field(ge=0, le=MAX_TASKS)] = 0
    keep_going: Flag = False
    timeout: PositiveDuration | None = None
    on_timeout: OnTimeout = OnTimeout.KILL
    max_retries_timeout: Annotated[Whole, Field(ge=0, le=10_000)] = 100
    scheduling_timeout: PositiveDuration | None = None
    placement: PlacementSpec = Field(default_factory=lambda: ANYWHERE)
    after: Dependencies = ()
    not_before: Moment | None = None
    priority: Priority = 50
    notify: Channels = ()
    recovery: Recovery = None

    @model_validator(mode="after")
    def _gang_size(self) -> "JobSpec":
        if self.coscheduled and self.tasks > MAX_GANG:
            raise ValueError(f"tasks: expected at most {MAX_GANG} in a coscheduled job")
        return self

    @model_validator(mode="after")
    def _only_of_them(self) -> "JobSpec":
        if self.only is not None and self.only.last >= self.tasks:
            raise ValueError(f"only: expected indexes below tasks, which is {self.tasks}")
        return self

    @property
    def tasks_to_run(self) -> int:
        """How many of the tasks are run."""
        return self.tasks if self.only is None else len(self.only)

    @property
    def recovers_whole(self) -> bool:
        """Whether all tasks wait while machines of one are checked or healed."""
        by_scope = self.recovery is not None and self.recovery.scope is RecoveryScope.JOB
        return self.coscheduled or by_scope

    def task_at(self, position: int) -> int:
        """The index of the task that is the ``position``-th to be run, from 0."""
        return position if self.only is None else self.only[position]

    def contradictions(self) -> Iterator[Problem]:
        yield from self.placement.contradictions()
        yield from like_an_id(self.name)
        yield from super().contradictions()
        if self.tasks > 1 and not self.coscheduled:
            for key, value in self.placement.between_kernels():
                yield Problem(f"placement.{key}", value, "this is for gangs: set coscheduled: true")
        if self.on_timeout is OnTimeout.RETRY and self.timeout is None:
            yield Problem("on_timeout", "retry", "there is no time limit: set timeout")
        if self.leader is not None and not self.coscheduled:
            yield Problem("leader", str(self.leader), "this is for gangs: set coscheduled: true")
        elif self.leader is not None and self.leader >= self.tasks:
            yield Problem("leader", str(self.leader), f"expected one below tasks: {self.tasks}")
        if self.coscheduled and self.keep_going:
            yield Problem("keep_going", "true", "a gang ends as one: leave it out")
        scope = None if self.recovery is None else self.recovery.scope
        if self.coscheduled and scope is RecoveryScope.TASK:
            yield Problem("recovery.scope", "task", "a gang ends as one: leave it out")
        if self.coscheduled and self.only is not None:
            yield Problem("only", repr(str(self.only)), "a gang runs whole: leave it out")
