"""The pauses between the tries of a task that fails, and the machines on which it failed: (design:
Budgets)."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from muster.core.ids import AgentId, JobId
from muster.core.specs import JobSpec
from muster.core.states import SESSION_TABLE, KernelStatus
from muster.store.records import Kernel, Session, Task
from muster.store.unit import Unit
from proving.swarm.judge import Invariant, Judge

MOST_REMEMBERED = 32
ROUNDED_S = 1e-6


@dataclass(slots=True)
class _Failed:
    """The failures of a task: how many, when the last one was charged by the controller's clock,
    and the machines."""

    count: int = 0
    at: float = 0.0
    agents: set[AgentId] = field(default_factory=set)


class RetriesArePutOff(Invariant):
    says = "a task that failed is tried again after its pause, and prefers another machine"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._failed: dict[tuple[JobId, int], _Failed] = defaultdict(_Failed)

    def committed(self, unit: Unit) -> None:
        charged = {task for task in unit.touched[Task] if self._note(task, unit.now)}
        sessions = [each for each in unit.touched[Session] if each.job is not None]
        ended = [each for each in sessions if each.status in SESSION_TABLE.terminal]
        kernels = [kernel for each in ended for kernel in each.kernels]
        attempts = Counter((kernel.session.job, kernel.task_index) for kernel in kernels)
        for kernel in kernels:
            if attempts[kernel.session.job, kernel.task_index] == 1:
                self._note_machine(kernel, charged)
        for session in sessions:
            if unit.is_new(session):
                self._judge(session)

    def _note(self, task: Task, now: float) -> bool:
        """Whether the task was charged a failure."""
        known = self._failed[task.job.id, task.index]
        is_charged = task.failure_count > known.count
        if is_charged:
            known.count, known.at = task.failure_count, now
        return is_charged

    def _note_machine(self, kernel: Kernel, charged: set[Task]) -> None:
        job, index, agent = kernel.session.job, kernel.task_index, kernel.agent_id
        if job is None or index is None or agent is None or job.spec.recovery is not None:
            return  # a recovery finds out whether the machine was at fault
        task = job.tasks.get(index)
        if task is None:
            return
        if kernel.status is KernelStatus.ERROR or task in charged:
            self._failed[job.id, index].agents.add(agent)

    def _judge(self, session: Session) -> None:
        job = session.job
        assert job is not None, "only attempts of tasks are judged"
        for kernel in session.kernels:
            assert kernel.task_index is not None, "it is an attempt of a task"
            known = self._failed[job.id, kernel.task_index]
            name = f"attempt {kernel.attempt} of task {kernel.task_index} of {job.id}"
            if known.count:
                since, pause = session.created_at - known.at, pause_s(job.spec, known.count)
                early = f"{name} begins {since:g} s after failure {known.count}, not {pause:g} s"
                self.expect(since >= pause - ROUNDED_S, early)
            if session.returns_to is None and len(known.agents) <= MOST_REMEMBERED:
                missing = known.agents.difference(session.failed_agents)
                self.expect(not missing, f"{name} does not know that it failed on {missing}")


def pause_s(spec: JobSpec, failures: int) -> float:
    """The least time from a failure of a task to its next try: it doubles each time. A job that
    does not say how long has its first retry at once, and waits a second before the next."""
    first_s, waits = (1.0, failures - 1) if spec.retry_backoff is None else (0.0, failures)
    if spec.retry_backoff is not None:
        first_s = spec.retry_backoff
    if waits == 0:
        return 0.0
    return float(min(first_s * 2 ** (waits - 1), max(spec.max_retry_backoff, first_s)))
