"""Work that waits for other work (``after`` in a spec), or for a time (``not_before``)."""

from collections import Counter

from muster.core.specs import DependencyCondition
from muster.core.states import JOB_TABLE, SESSION_TABLE, JobState, SessionStatus
from proving.hollow.agent import HollowAgent
from proving.hollow.supervisor import Kernel
from proving.swarm.chance import attempt_of
from proving.swarm.judge import Invariant, Judge
from proving.swarm.oracle.facts import Statuses
from proving.swarm.oracle.room import spec_of

_WAITING = {JobState.PENDING.value, SessionStatus.PENDING.value}
_AFTER_ALL = {DependencyCondition.ENDED, DependencyCondition.FAILED}
_ENDED = {*JOB_TABLE.terminal, *SESSION_TABLE.terminal}


class DependenciesAreMet(Invariant):
    """Work that waits for the end of other work may need the files and ports of its processes."""

    says = "nothing begins before its dependencies are met"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._statuses = judge.of(Statuses)
        self._running: Counter[str] = Counter()  # kernels with processes, by their work

    def gone(self, agent: HollowAgent, kernel: Kernel) -> None:
        self._running[_work_of(kernel)] -= 1

    def begun(self, agent: HollowAgent, kernel: Kernel) -> None:
        self._running[_work_of(kernel)] += 1
        if self.world.controller is None:
            return
        record = self.world.store.live.kernels.get(kernel.start.kernel)
        if record is None:
            return
        for each in spec_of(record.session).after:
            status = self._statuses.known.get(each.on, "")
            told = f"{kernel.key} begins after {each.on} is {each.condition}, which is {status}"
            self.expect(_may_be_met(each.condition, status), told)
            left = self._running[each.on] if each.condition in _AFTER_ALL else 0
            self.expect(not left, f"{kernel.key} begins, and {left} kernels of {each.on} still run")


def _work_of(kernel: Kernel) -> str:
    """The id of the job, or of the session without one, to which the kernel belongs."""
    attempt, env = attempt_of(kernel.start), {**kernel.start.template.env, **kernel.start.env}
    return env["MUSTER_SESSION_ID"] if attempt is None else attempt[0]


class StartTimesAreKept(Invariant):
    """By the controller's time, which may be ahead on another machine."""

    says = "nothing begins before its start time"

    def begun(self, agent: HollowAgent, kernel: Kernel) -> None:
        if self.world.controller is None:
            return
        record = self.world.store.live.kernels.get(kernel.start.kernel)
        not_before = None if record is None else spec_of(record.session).not_before
        if not_before is not None:
            early_s = not_before - self.now - max(0.0, self.controller_ahead_s)
            self.expect(early_s <= 0, f"{kernel.key} begins {early_s:.3f} s before its start time")


def _may_be_met(condition: DependencyCondition, status: str) -> bool:
    """Whether a condition on work of this status can hold."""
    match condition:
        case DependencyCondition.ENDED:
            return status in _ENDED
        case DependencyCondition.FAILED:
            return status in _ENDED and status != JobState.SUCCEEDED
        case DependencyCondition.SUCCEEDED:
            return status in (JobState.SUCCEEDED, SessionStatus.TERMINATED)
        case DependencyCondition.RUNNING | DependencyCondition.HEALTHY:
            return status not in _WAITING
