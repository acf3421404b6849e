"""A job as people write it (design: Budgets)."""

import difflib
from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    InstanceOf,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
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
from muster.core.specs.matrix import Matrix, Point, placeholders
from muster.core.specs.notify import Channels
from muster.core.specs.placement import ANYWHERE, Dependencies, PlacementSpec
from muster.core.specs.recovery import Recovery, RecoveryScope
from muster.core.specs.session import MAX_GANG, Process, like_an_id
from muster.core.specs.work import Priority
from muster.core.task_ranges import EXPECTED_RANGES, MAX_TASKS, TaskRanges

FIRST_SUCCESS = "first_success"
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


def _successes(value: Any) -> Any:
    if isinstance(value, str):
        if value != FIRST_SUCCESS:
            raise ValueError(f"expected {FIRST_SUCCESS}, or a number of tasks")
        return 1
    return value


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
        matrix: parameters with values, or a list of points: a task for each combination, or each
            point. A task's values stand in MUSTER_PARAM_*, and in place of names in braces in
            `command` and `env`.
        tasks: number of tasks; each knows its index by MUSTER_TASK_INDEX.
        only: the tasks that are run, as "3,17,40-45", or "0-100:25" for every 25th of them; all
            when left out. Their indexes and MUSTER_TASK_COUNT do not change.
        max_running: tasks that hold room at a time, at most.
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
        stop_when: `first_success`, or the number of tasks whose success is enough: the job has
            succeeded then, and its other tasks are stopped.
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
        hold: whether it is handed in held, so that no task begins until it is released.
        notify: channels that are told of its end, as a list of URLs, or of {url: URL, on: failure}.
        recovery: `true` or fields: a failed task has its machines checked, a faulty machine is
            healed, and the job goes on.
    """

    kind: Literal["job"] = "job"
    name: Name | None = None
    project: OwnerName | None = None
    group: Name = "default"
    matrix: Matrix | None = None
    tasks: Annotated[Whole, Field(ge=1, le=MAX_TASKS, validate_default=True)] = 1
    only: Annotated[Only | None, BeforeValidator(_task_ranges), Field(validate_default=True)] = None
    max_running: Annotated[Whole, Field(ge=1, le=MAX_TASKS)] | None = None
    coscheduled: Flag = False
    leader: Annotated[Whole, Field(ge=0)] | None = None
    max_retries_failure: Annotated[Whole, Field(ge=0, le=10_000)] = 0
    max_retries_preemption: Annotated[Whole, Field(ge=0, le=10_000)] = 100
    retry_backoff: Annotated[Duration, Field(ge=0, le=MAX_BACKOFF_S)] | None = None
    max_retry_backoff: Annotated[PositiveDuration, Field(le=MAX_BACKOFF_S)] = 60.0
    max_task_failures: Annotated[Whole, Field(ge=0, le=MAX_TASKS)] = 0
    keep_going: Flag = False
    stop_when: Annotated[
        Annotated[Whole, Field(ge=1, le=MAX_TASKS)] | None, BeforeValidator(_successes)
    ] = None
    timeout: PositiveDuration | None = None
    on_timeout: OnTimeout = OnTimeout.KILL
    max_retries_timeout: Annotated[Whole, Field(ge=0, le=10_000)] = 100
    scheduling_timeout: PositiveDuration | None = None
    placement: PlacementSpec = Field(default_factory=lambda: ANYWHERE)
    after: Dependencies = ()
    not_before: Moment | None = None
    priority: Priority = 50
    hold: Flag = False
    notify: Channels = ()
    recovery: Recovery = None

    @field_validator("tasks")
    @classmethod
    def _tasks_of_matrix(cls, tasks: int, info: ValidationInfo) -> int:
        matrix: Matrix | None = info.data.get("matrix")
        if matrix is None:
            return tasks
        if tasks not in (1, matrix.size):
            raise ValueError(f"the matrix makes {matrix.size:,} tasks: leave it out")
        return matrix.size

    @field_validator("only")
    @classmethod
    def _only_of_matrix(cls, only: TaskRanges | None, info: ValidationInfo) -> TaskRanges | None:
        matrix: Matrix | None = info.data.get("matrix")
        return only if matrix is None else matrix.run(only)

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

    @cached_property
    def has_placeholders(self) -> bool:
        """Whether command or environment are others for each task, by its values."""
        if self.matrix is None:
            return False
        names = set(self.matrix.names)
        return any(name in names for name in placeholders([*self.command, *self.env.values()]))

    def point(self, index: int) -> Point:
        """The values of a task's parameters; none without a matrix."""
        return {} if self.matrix is None else self.matrix.point(index)

    def _misspelt(self) -> Iterator[Problem]:
        """Names in braces that are nearly those of parameters."""
        names = [] if self.matrix is None else list(self.matrix.names)
        texts = {
            "command": self.command,
            **{f"env.{key}": [text] for key, text in self.env.items()},
        }
        for field, written in texts.items():
            for name in placeholders(written):
                near = [] if name in names else difflib.get_close_matches(name, names, 1, 0.7)
                if near:
                    expected = f"no such parameter: did you mean {{{near[0]}}}?"
                    yield Problem(field, f"{{{name}}}", expected)

    def contradictions(self) -> Iterator[Problem]:
        yield from self._misspelt()
        if self.coscheduled and self.matrix is not None:
            yield Problem("matrix", "", "a gang's tasks are one program's: leave out coscheduled")
        if self.coscheduled and self.stop_when is not None:
            yield Problem("stop_when", str(self.stop_when), "a gang ends as one: leave it out")
        elif self.stop_when is not None and self.stop_when > self.tasks_to_run:
            expected = f"expected at most as many as tasks: {self.tasks_to_run}"
            yield Problem("stop_when", str(self.stop_when), expected)
        if self.coscheduled and self.max_running is not None:
            yield Problem("max_running", str(self.max_running), "a gang runs whole: leave it out")
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


KIND = JobSpec
