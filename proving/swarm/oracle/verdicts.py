"""The rules on ended attempts and on jobs, as their references have them. Pure functions."""

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from muster.core.reasons import ReasonCode
from muster.core.states import JobState, TaskState
from proving.swarm.oracle.facts import End, How

_R = ReasonCode
DISPLACED = frozenset({_R.PREEMPTED, _R.DRAINED, _R.HEALTH_HEALS})
ENDED_BY_US = frozenset(
    {_R.CANCELLED, _R.TASK_STOPPED, _R.TIMEOUT, _R.JOB_ENDED, _R.JOB_FAILED, _R.PREEMPTED_FOR_GOOD}
)
NEVER = frozenset(
    {
        _R.ABOVE_QUOTA,
        _R.ABOVE_LARGEST,
        _R.DEPENDENCY_FAILED,
        _R.DEPENDENCY_SUCCEEDED,
        _R.DEPENDENCY_MISSING,
    }
)
"""Reasons that time does not cure: they end a job that has not begun, whatever else it wants."""
NO_PLACE = NEVER | {_R.SCHEDULING_TIMEOUT, _R.NO_AGENT_ABLE}
NOT_STARTED = frozenset({_R.RESCHEDULE_LIMIT, _R.PHASE_GAVE_UP})
CLOSE_S = 5.0
"""Of ends this close nobody can tell which came first; the machine is charged before the task."""
UNSURE_S = 2.5
"""By how much a message may be late, and with it the controller's idea of when something was."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The end of one attempt: what is known of its kernel's, whether it had begun, and why its
    session ended. ``let_go`` says that the barrier of its gang had been opened."""

    end: End | None
    has_begun: bool
    why: ReasonCode | None
    let_go: bool = False

    @property
    def state(self) -> TaskState:
        """The state in which the attempt ended; PENDING if nobody is to blame."""
        end = self.end
        if end is not None and end.how is How.BY_ITSELF and end.exit_code == 0:
            return TaskState.SUCCEEDED
        if self.why in NO_PLACE:
            return TaskState.UNSCHEDULABLE
        if self.why in NOT_STARTED and not self.has_begun and not self.let_go:
            return TaskState.FAILED
        if self.why in ENDED_BY_US:
            by_itself = end is not None and end.how is How.BY_ITSELF
            late = self.why is ReasonCode.TIMEOUT and by_itself
            return TaskState.FAILED if late else TaskState.KILLED
        lost = end is not None and end.how is How.WITH_MACHINE and not self.was_given_up
        if self.why in DISPLACED or lost:
            return TaskState.WORKER_FAILED if self.has_begun else TaskState.PENDING
        if end is not None and end.how is How.BY_ITSELF:
            return TaskState.FAILED
        if not self.has_begun:
            return TaskState.WORKER_FAILED if self.let_go else TaskState.PENDING
        return TaskState.FAILED

    @property
    def was_given_up(self) -> bool:
        """Whether its agent did not know its kernel when that was to be stopped, because it could
        not be started: it was not lost, whatever became of the gang's other machines."""
        vanished = self.end is not None and self.end.code is ReasonCode.KERNEL_VANISHED
        return vanished and not self.has_begun

    @property
    def was_stopped(self) -> bool:
        """Whether its kernel ended for nothing but a command."""
        return self.end is not None and self.end.how in (How.STOPPED, How.NEVER_BEGUN)

    @property
    def at(self) -> float:
        return float("inf") if self.end is None else self.end.at


def charged(gang: Sequence[Attempt]) -> Sequence[Set[int]] | None:
    """The sets of members of a gang that may be charged for its failure: one, unless nobody can
    tell. None if each member is judged for itself."""
    states = [each.state for each in gang]
    if set(states) == {TaskState.SUCCEEDED}:
        return None
    if {TaskState.KILLED, TaskState.UNSCHEDULABLE} & set(states):
        return None
    lost = {i for i, state in enumerate(states) if state is TaskState.WORKER_FAILED}
    unbegun = {i for i, each in enumerate(gang) if not each.has_begun}
    failed = {
        i for i, state in enumerate(states) if state is TaskState.FAILED and not gang[i].was_stopped
    }
    if (lost | failed) - unbegun:  # one that began went wrong, or its machine did
        lost -= unbegun
    if not lost | failed:
        return [set()]
    first = min(gang[i].at for i in lost | failed)
    latest = first + CLOSE_S
    may_be: list[Set[int]] = []
    if any(gang[i].at <= latest + UNSURE_S for i in lost):
        may_be.append(lost)
    if not any(gang[i].at <= latest - UNSURE_S for i in lost):
        may_be += [{i} for i in failed | lost if gang[i].at <= first + UNSURE_S]
    return may_be


def job_state(
    tasks: Iterable[TaskState],
    total: int,
    most_failures: int,
    *,
    keep_going: bool,
    stopped: int = 0,
) -> JobState | None:
    """The state in which a job has ended; None if it goes on. Tasks that are not among ``tasks``
    have not begun; ``stopped`` of them were stopped one by one, which ends no other."""
    counts = Counter(tasks)
    ended = sum(counts[state] for state in _ENDED)
    if keep_going and ended < total:
        return None
    if counts[TaskState.SUCCEEDED] == total:
        return JobState.SUCCEEDED
    if counts[TaskState.FAILED] > most_failures:
        return JobState.FAILED
    if counts[TaskState.UNSCHEDULABLE]:
        return JobState.UNSCHEDULABLE
    if counts[TaskState.KILLED] > stopped:
        return JobState.KILLED
    if ended < total:
        return None
    if counts[TaskState.WORKER_FAILED] or not counts[TaskState.SUCCEEDED]:
        return JobState.FAILED
    return JobState.SUCCEEDED


_ENDED = (
    TaskState.SUCCEEDED,
    TaskState.FAILED,
    TaskState.KILLED,
    TaskState.WORKER_FAILED,
    TaskState.UNSCHEDULABLE,
)
