"""A job as people write it (reference iris-task-states for budgets and their defaults)."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from muster.core.errors import Problem
from muster.core.specs.amounts import Moment, Name, PositiveDuration
from muster.core.specs.placement import ANYWHERE, Dependencies, PlacementSpec
from muster.core.specs.session import MAX_GANG, Process

MAX_TASKS = 10_000_000


class JobSpec(Process):
    """Batch work: ``tasks`` replicas of one process, each with two retry budgets.

    Args:
        tasks: how many; each knows its index by MUSTER_TASK_INDEX.
        coscheduled: one gang: the tasks start together, with ranks and an address to meet at.
        max_retries_failure: retries of a task that exited with an error.
        max_retries_preemption: retries of a task that lost its machine.
        max_task_failures: tasks that may fail for good without failing the job.
        timeout: longest run of one attempt, in seconds; past it the task is KILLED.
        scheduling_timeout: longest wait for a place; past it the task is UNSCHEDULABLE.
        placement: where its tasks go.
        after: what must have come so far before any of it starts.
        not_before: the earliest start.
        priority: 0 to 100; higher goes first.
    """

    kind: Literal["job"] = "job"
    name: Name | None = None
    group: Name = "default"
    tasks: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 1
    coscheduled: bool = False
    max_retries_failure: Annotated[int, Field(ge=0, le=10_000)] = 0
    max_retries_preemption: Annotated[int, Field(ge=0, le=10_000)] = 100
    max_task_failures: Annotated[int, Field(ge=0, le=MAX_TASKS)] = 0
    timeout: PositiveDuration | None = None
    scheduling_timeout: PositiveDuration | None = None
    placement: PlacementSpec = Field(default_factory=lambda: ANYWHERE)
    after: Dependencies = ()
    not_before: Moment | None = None
    priority: Annotated[int, Field(ge=0, le=100)] = 50

    @model_validator(mode="after")
    def _gang_size(self) -> "JobSpec":
        if self.coscheduled and self.tasks > MAX_GANG:
            raise ValueError(f"tasks: expected at most {MAX_GANG} in a coscheduled job")
        return self

    def contradictions(self) -> Iterator[Problem]:
        yield from self.placement.contradictions()
        if self.tasks > 1 and not self.coscheduled:
            for key, value in self.placement.between_kernels():
                yield Problem(f"placement.{key}", value, "this is for gangs: set coscheduled: true")
