"""Facts about ends of a job's tasks that their states do not tell. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_kernels import Exited, Signaled
from muster.core.reasons.of_tasks import OutputLost, ProcessesKilled
from muster.core.task_ranges import TaskRanges

MAX_RANGES = 32
"""Ranges of tasks that are named; further tasks are counted."""
_REASONS = {
    ReasonCode.PROCESSES_KILLED: ProcessesKilled,
    ReasonCode.OUTPUT_LOST: OutputLost,
}


@dataclass(frozen=True, slots=True)
class JobRemark:
    """A fact about so many tasks of a job.

    Args:
        code: of the reason that tells it.
        tasks: how many tasks it is about.
        which: the first of them, as ``TaskRanges``.
    """

    code: ReasonCode
    tasks: int
    which: str

    def reason(self) -> Reason:
        """The fact in words."""
        more = self.tasks - len(TaskRanges.parse(self.which))
        kind = _REASONS[self.code]
        return kind(tasks=self.tasks, which=self.which, more=more)


def with_task(remarks: Sequence[JobRemark], code: ReasonCode, index: int) -> tuple[JobRemark, ...]:
    """The remarks once the fact with this code is noted of the task, too."""
    others = [each for each in remarks if each.code != code]
    before = next((each for each in remarks if each.code == code), None)
    if before is None:
        return (*others, JobRemark(code, 1, str(index)))
    named = TaskRanges.parse(before.which)
    if index in named:
        return tuple(remarks)
    wider = TaskRanges.of((*named.ranges, (index, index)))
    which = before.which if len(wider.ranges) > MAX_RANGES else str(wider)
    return (*others, JobRemark(code, before.tasks + 1, which))


def of_end(why: Reason | None) -> Iterator[ReasonCode]:
    """The facts about the end of a kernel that its state does not tell."""
    if not isinstance(why, Exited | Signaled):
        return
    if why.oom_kills:
        yield ReasonCode.PROCESSES_KILLED
    if why.lost_output_bytes:
        yield ReasonCode.OUTPUT_LOST
