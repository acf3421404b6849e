"""Attempts whose verdict is kept open, because the machine rather than the task may be to blame
(design: Recovery).

Somebody above jobs, the *keeper*, has the machines checked. Until then the tasks of the attempt are
PENDING, are charged nothing, and begin no other attempt; ``closing`` settles them.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Protocol

from muster.control.engine.work import Work
from muster.control.job.judge import TaskVerdict
from muster.core.states import TaskState
from muster.store.records import Job, Session, Task


class Keeper(Protocol):
    """Knows which attempts have an open verdict."""

    def keeps_open(self, work: Work, session: Session, charged: Collection[int]) -> bool:
        """Whether the verdict on an attempt that has just ended stays open; the keeper notes whom
        it would charge.

        Args:
            charged: the indexes of the tasks that it charges with a failure.
        """

    def holds(self, task: Task) -> bool:
        """Whether the task begins no attempt for now."""

    def holds_job(self, job: Job) -> bool:
        """Whether no task of the job begins an attempt for now, not even its first."""

    def returns_to(self, task: Task) -> tuple[str, ...] | None:
        """The names of the agents that the next attempt of the task is to prefer, because it is
        restarted after a fault of a machine; None if it is not."""


class HeldAttempts:
    """The part by which jobs ask the keeper, if there is one; only jobs with ``recovery`` do."""

    def __init__(self) -> None:
        self.keeper: Keeper | None = None

    def keeps_open(self, work: Work, session: Session, charged: Collection[int]) -> bool:
        """See ``Keeper``."""
        keeper = self._keeper_of(session.job)
        return keeper is not None and keeper.keeps_open(work, session, charged)

    def holds(self, task: Task) -> bool:
        """See ``Keeper``."""
        keeper = self._keeper_of(task.job)
        return keeper is not None and keeper.holds(task)

    def holds_job(self, job: Job) -> bool:
        """See ``Keeper``."""
        keeper = self._keeper_of(job)
        return keeper is not None and keeper.holds_job(job)

    def holds_all(self, job: Job) -> bool:
        """Whether no waiting task of the job may begin an attempt for now: the job is held whole,
        or all of them are."""
        waiting = job.waiting.values()
        if job.spec.recovery is None or not waiting:
            return not waiting
        if job.spec.recovers_whole:
            return self.holds_job(job)
        return all(map(self.holds, waiting))

    def returns_to(self, task: Task) -> tuple[str, ...] | None:
        """See ``Keeper``."""
        keeper = self._keeper_of(task.job)
        return None if keeper is None else keeper.returns_to(task)

    def _keeper_of(self, job: Job | None) -> Keeper | None:
        return None if job is None or job.spec.recovery is None else self.keeper


def put_off(verdict: TaskVerdict, task: Task) -> TaskVerdict:
    """The verdict that leaves everything open: the task waits, and is charged nothing yet."""
    return replace(
        verdict,
        state=TaskState.PENDING,
        failure_count=task.failure_count,
        preemption_count=task.preemption_count,
        timed_out=False,
    )
