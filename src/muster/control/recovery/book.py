"""The recoveries by their jobs and by the machines for which they wait, and what they hold back."""

from collections.abc import Collection, Sequence

from muster.control.engine.work import Work
from muster.control.recovery.entity import Recovery
from muster.control.recovery.rounds import Round
from muster.core.ids import AgentId, JobId
from muster.core.reasons import ReasonCode
from muster.core.states.recovery import RecoveryStatus
from muster.store.live import Live
from muster.store.records import Job, Session, Task

_HOLDING = frozenset({RecoveryStatus.PENDING_HEALTHCHECK, RecoveryStatus.PENDING_RESTART})


class Recoveries:
    """The live recoveries. It is the keeper that jobs ask (``control.job.held.Keeper``)."""

    def __init__(self, live: Live) -> None:
        self._of_job: dict[JobId, Recovery] = {}
        self._watching: dict[AgentId, dict[Recovery, None]] = {}
        self._watched: dict[Recovery, frozenset[AgentId]] = {}
        for recovery in live.of(Recovery).values():
            self.made(recovery)

    def __bool__(self) -> bool:
        return bool(self._of_job)

    def of(self, job: Job) -> Recovery | None:
        """The recovery of a job, until both have ended."""
        return self._of_job.get(job.id)

    def watching(self, agent: AgentId) -> Sequence[Recovery]:
        """The recoveries with a round that concerns this agent."""
        return [*self._watching.get(agent, ())]

    def made(self, recovery: Recovery) -> None:
        """Take note of a new recovery."""
        self._of_job[recovery.job.id] = recovery
        self.changed(recovery)

    def forget(self, job: Job) -> None:
        """Forget the recovery of a job that has ended with it."""
        recovery = self._of_job.pop(job.id, None)
        if recovery is not None:
            self._watch(recovery, frozenset())

    def changed(self, recovery: Recovery) -> None:
        """Take note of the rounds that the recovery has now."""
        rounds = filter(None, (recovery.open, recovery.next))
        self._watch(recovery, frozenset(agent.id for each in rounds for agent in each.agents))

    def _watch(self, recovery: Recovery, agents: frozenset[AgentId]) -> None:
        before = self._watched.pop(recovery, frozenset())
        for agent in before - agents:
            self._watching[agent].pop(recovery, None)
            if not self._watching[agent]:
                del self._watching[agent]
        for agent in agents - before:
            self._watching.setdefault(agent, {})[recovery] = None
        if agents:
            self._watched[recovery] = agents

    # -- control.job.held.Keeper ---------------------------------------------------------------

    def keeps_open(self, work: Work, session: Session, charged: Collection[int]) -> bool:
        """Whether a round was noted for the session's attempt, whose verdict waits for it."""
        job = session.job
        recovery = None if job is None else self.of(job)
        if recovery is None:
            return False
        attempts = [(kernel.task_index or 0, kernel.attempt) for kernel in session.kernels]
        rounds = (recovery.open, recovery.next)
        round_ = next((each for each in rounds if _of(each, attempts)), None)
        if round_ is None:
            return False
        if not charged and not round_.had_to_leave(attempts):
            self._withdraw(recovery, round_, attempts, work)
            return False
        noted = round_.charging(attempts, frozenset(charged))
        recovery.replace_round(round_, noted)
        work.unit.touch(recovery)
        work.mark(recovery)
        return True

    def _withdraw(
        self,
        recovery: Recovery,
        round_: Round,
        attempts: Sequence[tuple[int, int]],
        work: Work,
    ) -> None:
        """Have the round hold these attempts no longer, whose verdict charges no task a failure: it
        turned out that a machine was lost, or that somebody stopped them. A round that is about no
        others is over without a restart (see ``AwaitChecks``), or does not begin."""
        rest = round_.without(attempts)
        if rest.tasks:
            recovery.replace_round(round_, rest)
        elif round_ is recovery.next:
            recovery.next = None
            recovery.rounds -= recovery.rounds == round_.number
        self.changed(recovery)
        work.unit.touch(recovery)
        work.mark(recovery)

    def holds(self, task: Task) -> bool:
        """Whether the task's next attempt waits for a check, or for a machine."""
        if task.job.spec.recovers_whole:
            return self.holds_job(task.job)
        recovery = self.of(task.job)
        if recovery is None:
            return False
        if _has(recovery.next, task):
            return True
        return recovery.status in _HOLDING and _has(recovery.open, task)

    def holds_job(self, job: Job) -> bool:
        """Whether all tasks of a job that recovers whole wait with one whose attempt failed."""
        recovery = self.of(job)
        if recovery is None or not recovery.is_whole:
            return False
        return recovery.next is not None or recovery.status in _HOLDING

    def returns_to(self, task: Task) -> tuple[str, ...] | None:
        """The healthy machines of the task's last attempt, if it is restarted after a fault."""
        recovery = self.of(task.job)
        if recovery is None:
            return None
        healed = next((each for each in recovery.kept if _healed_for(each, task)), None)
        if healed is not None:
            return healed.returned_to
        if recovery.status is not RecoveryStatus.RESTARTING:
            return None
        if recovery.open is None or not _has(recovery.open, task):
            return None
        return recovery.open.returned_to


def _healed_for(round_: Round, task: Task) -> bool:
    """Whether the round ended once the machine of the task's last attempt was healthy again."""
    healed = round_.outcome is not None and round_.outcome.code is ReasonCode.RECOVERY_HEALED
    return healed and round_.has(task.index, task.attempt)


def _has(round_: Round | None, task: Task) -> bool:
    """Whether the task is one of the round's; a gang is in it whole."""
    if round_ is None:
        return False
    return task.job.spec.coscheduled or round_.has(task.index, task.attempt)


def _of(round_: Round | None, attempts: Sequence[tuple[int, int]]) -> bool:
    """Whether the round is about one of these attempts."""
    return round_ is not None and any(round_.has(*attempt) for attempt in attempts)
