"""Jobs on the command line."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, cast

from muster.cli.kinds.kind import Json, Row, Shown, WorkKind, gpus_of
from muster.cli.kinds.outputs import Extent, Outputs, Runs
from muster.core.errors import InvalidSpec, NotFound
from muster.core.exit_codes import FAILED
from muster.core.states import JOB_TABLE, TASK_TABLE, TaskState
from muster.core.views.work import JobDetail, JobView, WorkStanding

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from muster.cli.cluster import Cluster
    from muster.cli.hand_in import Display
    from muster.cli.streams import Line
    from muster.client import Client
    from muster.core.specs import JobSpec
    from muster.core.specs.amounts import Spec
    from muster.core.views.base import ReasonView, RecordView
    from muster.core.views.placement import WhyView
    from muster.core.views.work import TaskDetail

PAGE = 1000
LISTED = 100
"""Tasks of a list, unless more are asked for."""


class TaskOutputs(Outputs[JobDetail]):
    """The output of each task of a job."""

    part = "task"
    has_attempts = True

    def size(self, found: JobDetail) -> int:
        return found.tasks_total

    def indexes(self, found: JobDetail) -> Iterable[int]:
        from muster.core.task_ranges import TaskRanges

        if only := found.spec.get("only"):
            ranges = TaskRanges.parse(str(only))
            return (ranges[position] for position in range(len(ranges)))
        return range(found.task_count)

    def index_end(self, found: JobDetail) -> int:
        return found.task_count

    def begun(self, client: "Client", found: JobDetail, *, failed: bool = False) -> Iterable[int]:
        if not failed and found.tasks_total == 1:
            return self.indexes(found)
        return (task.index for task in _tasks(client, found.id, failed) if _has_begun(task))

    def short(self, client: "Client", id_: str, indexes: Sequence[int]) -> Mapping[int, bytes]:
        with suppress(NotFound):  # of the answer, which an older controller does not have
            found = client.short_outputs(id_, indexes)
            return {each.task: each.data for each in found.items}
        return {}

    def runs(self, client: "Client", found: JobDetail, index: int) -> Runs:
        task = client.task(found.id, index)
        return Runs(task.attempts, task.reason)

    def pieces(self, client: "Client", id_: str, index: int, extent: Extent) -> Iterator[bytes]:
        return client.logs(
            id_,
            task=index,
            attempt=1 if extent.every else extent.attempt,
            tail_bytes=extent.tail_bytes,
            follow=extent.follow,
            stderr=extent.stderr,
            retries=extent.every or None,
            on_cut=extent.on_cut,
        )


def _tasks(client: "Client", id_: str, failed: bool) -> "Iterator[TaskDetail]":
    """A job's tasks that have had an attempt, or those that failed."""
    for offset in count(0, PAGE):
        tasks = client.tasks(id_, failed=failed, offset=offset, limit=PAGE).items
        yield from tasks
        if len(tasks) < PAGE or not tasks[-1].attempt:  # later tasks have no attempts either
            return


def _has_begun(task: "TaskDetail") -> bool:
    return bool(task.attempts) and task.attempts[-1].started_at is not None


def _gpus(record: JobView) -> str:
    """How many GPUs the tasks of a job have, of how many that all ask for that have not ended."""
    held = sum(record.counts.get(state, 0) for state in _HOLD)
    left = sum(number for state, number in record.counts.items() if state in TASK_TABLE.live)
    return gpus_of(held * record.gpu_milli, left * record.gpu_milli)


_HOLD = (TaskState.ASSIGNED, TaskState.BUILDING, TaskState.RUNNING)


class JobKind(WorkKind[JobView, JobDetail]):
    """Jobs."""

    name = "job"
    is_on_agents = True
    states = JOB_TABLE
    scopes: ClassVar = {
        WorkStanding.WAITING: "live",
        WorkStanding.STARTING: "running",
        WorkStanding.RUNNING: "running",
        WorkStanding.STOPPING: "current",
        WorkStanding.SUCCEEDED: "succeeded",
        WorkStanding.FAILED: "failed",
        WorkStanding.CANCELLED: "killed",
        WorkStanding.TIMED_OUT: "killed",
        WorkStanding.STOPPED: "killed",
    }
    has_parts = True
    outputs = TaskOutputs()

    def newest(
        self, client: "Client", state: str, *, limit: int, **filters: Any
    ) -> Sequence[JobView]:
        if state == "current":
            with suppress(InvalidSpec):  # of a controller that does not know this word
                return client.jobs(state, limit=limit, **filters)
            state = "live"
        return client.jobs(state, limit=limit, **filters)

    def standing(self, record: JobView) -> str:
        return record.standing

    def kernels_left(self, record: JobView) -> int:
        return record.kernels_left

    def silence(self, record: JobView) -> "ReasonView | None":
        return record.silence

    def stands(self, record: JobView) -> bool:
        return not (record.ended or record.counts.get(TaskState.RUNNING))

    def name_of(self, record: JobView) -> str:
        return record.name

    def described(
        self, console: "Console", client: "Client", found: JobDetail, shown: Shown
    ) -> "Sequence[RenderableType]":
        from muster.cli.described.job import described

        return described(console, client, found, shown, time.time())

    def as_json(self, client: "Client", found: JobDetail, shown: Shown) -> Json:
        import msgspec

        if shown.part is not None:
            return client.task(found.id, shown.part)
        listed = LISTED if shown.every else PAGE
        limit = listed if shown.limit is None else shown.limit
        asked = shown.where or None
        tasks = client.tasks(found.id, where=asked, offset=shown.offset, limit=limit).items
        if shown.every:
            return tasks
        keys: dict[str, Any] = msgspec.to_builtins(found)
        return keys | {"tasks": tasks}

    def why_of_part(self, client: "Client", found: JobDetail, index: int) -> "WhyView":
        return client.why_task(found.id, index)

    def row(self, record: JobView) -> Row:
        from muster.cli.follow.conclusion import done

        return Row(
            prefix="",
            name=record.name,
            size=f"{done(record)}/{record.tasks_total}",
            tasks=_numbers(record) if record.tasks_total > 1 else None,
            gpus=_gpus(record),
            group=record.group,
            owner=record.owner,
            created_at=record.submitted_at,
            started_at=record.started_at,
            finished_at=record.finished_at,
        )

    def note(self, spec: "Spec", file: str) -> str | None:
        from muster.cli.batch_scripts import note_on_options
        from muster.cli.local_workdir import left_behind
        from muster.cli.spec_file import directory_of
        from muster.client.workdir import current_directory

        job = cast("JobSpec", spec)
        notes = []
        if (unread := note_on_options(job.command, directory_of(file), job.files)) is not None:
            notes.append(unread)
        if (left := left_behind(job)) is not None:
            here = "." if directory_of(file) == current_directory() else current_directory()
            notes.append(
                f"it runs in an empty directory of its own, without {left}; "
                f"`workdir: {here}` in {file} makes it run here"
            )
        return "; ".join(notes) or None

    def warnings(self, accepted: JobView) -> "Sequence[ReasonView]":
        return accepted.warnings

    def concluded(self, client: "Client", found: JobDetail) -> "tuple[Line, int]":
        from muster.cli.follow.conclusion import conclusion
        from muster.cli.follow.exit_code import first_failed

        # A single task's own reason says it all; the job's counts tasks.
        failed = first_failed(client, found) if found.tasks_total == 1 else None
        return conclusion(found, failed.reason if failed else found.reason), self.exit_code(found)

    def exit_code(self, found: JobDetail) -> int:
        return FAILED if found.exit_code is None else found.exit_code

    def wait(
        self, cluster: "Cluster", accepted: JobView, display: "Display"
    ) -> "tuple[RecordView, int]":
        from muster.cli.follow.follow import JobFollower

        shown: Iterable[int] = ()
        if display.output and not display.as_json:
            shown = range(accepted.task_count)
            if accepted.tasks_total < accepted.task_count:  # it runs only some of them
                with cluster.client() as client:
                    shown = self.outputs.indexes(client.job(accepted.id))
        quiet = display.quiet or display.as_json
        ending = JobFollower(cluster, accepted, shown, quiet=quiet).run()
        return ending.job, ending.exit_code


def _numbers(job: JobView) -> tuple[int, int, int]:
    """How many of the job's tasks run, wait, and have failed."""

    def number(*states: TaskState) -> int:
        return sum(job.counts.get(state, 0) for state in states)

    return (
        number(TaskState.RUNNING),
        number(TaskState.PENDING, TaskState.ASSIGNED, TaskState.BUILDING),
        number(TaskState.FAILED, TaskState.WORKER_FAILED, TaskState.UNSCHEDULABLE),
    )


KIND = JobKind()
