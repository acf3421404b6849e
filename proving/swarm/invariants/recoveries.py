"""Recoveries of jobs from broken machines: what they may never do, whatever befalls machines."""

from collections import Counter
from collections.abc import Iterator

from muster.control.health.entity import Incident
from muster.control.recovery.entity import Recovery
from muster.control.recovery.rounds import FAULTS, AgentResult, Round
from muster.core.reasons import ReasonCode
from muster.core.specs import RecoverySpec
from muster.core.states import JOB_TABLE, JobState
from muster.core.states.recovery import RECOVERY_TABLE, RecoveryStatus
from muster.store.live import Live
from muster.store.records import Task
from muster.store.unit import Unit
from proving.hollow.agent import HollowAgent
from proving.hollow.supervisor import Kernel
from proving.swarm.chance import attempt_of
from proving.swarm.judge import Invariant, Judge
from proving.swarm.oracle.room import NOTICED_S

_HOLDING = frozenset({RecoveryStatus.PENDING_HEALTHCHECK, RecoveryStatus.PENDING_RESTART})
_NO_FAULT = frozenset(
    {ReasonCode.RECOVERY_HEALTHY, ReasonCode.RECOVERY_UNCHECKED, ReasonCode.RECOVERY_NO_FAULT}
)


class OneRecovery(Invariant):
    """It has one open round at most, by its record."""

    says = "a job has one live recovery at most"

    def committed(self, unit: Unit) -> None:
        if not unit.touched[Recovery]:
            return
        there = unit.live.of(Recovery).values()
        live = Counter(each.job.id for each in there if each.status in RECOVERY_TABLE.live)
        twice = [job for job, many in live.items() if many > 1]
        self.expect(not twice, f"{twice} have several live recoveries")


class OneRoundEach(Invariant):
    says = (
        "a failed attempt leads to one round at most, which is about no other attempt of its task"
    )

    def committed(self, unit: Unit) -> None:
        for recovery in unit.touched[Recovery]:
            there = (recovery.open, recovery.next, *recovery.kept)
            rounds = [each for each in there if each is not None]
            attempts = Counter((task.index, task.attempt) for each in rounds for task in each.tasks)
            tasks = Counter((each.number, task.index) for each in rounds for task in each.tasks)
            twice = [
                each for count in (attempts, tasks) for each, many in count.items() if many > 1
            ]
            self.expect(not twice, f"{twice} of {recovery.job.id} are twice in rounds")


class RestartsAreBounded(Invariant):
    """By how often it was to begin again because a task had failed."""

    says = "a job is restarted for faults of machines no more often than its spec says"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._status: dict[str, str] = {}
        self._restarts: Counter[str] = Counter()

    def committed(self, unit: Unit) -> None:
        rounds = {each.name: each.open or each.kept[-1] for each in _with_rounds(unit)}
        for kind, name, status in unit.events():
            if kind == "recovery" and self._status.get(name) != status:
                self._status[name] = status
                if status == RecoveryStatus.RESTARTING and not rounds[name].is_leave:
                    self._restarts[name] += 1
        for recovery in unit.touched[Recovery]:
            restarts, most = self._restarts[recovery.name], _spec(recovery).max_restarts
            self.expect(restarts <= most, f"{recovery.job.id} was restarted {restarts} times")


class LeavesCostNoRestart(Invariant):
    says = "work that has to leave a machine for its health costs its job no restart"

    def committed(self, unit: Unit) -> None:
        for recovery in unit.touched[Recovery]:
            failed = recovery.rounds - recovery.leaves
            self.expect(
                recovery.restarts <= failed,
                f"{recovery.job.id} was restarted {recovery.restarts} times, and failed {failed}",
            )


class NothingBeginsMeanwhile(Invariant):
    """Judged on the machines: of a gang nothing, of other jobs no task whose attempt failed; with
    `scope: job` nothing of which the attempt was made once the failure was seen."""

    says = "no task begins again while the machines of its attempt are checked or healed"

    def begun(self, agent: HollowAgent, kernel: Kernel) -> None:
        attempt, controller = attempt_of(kernel.start), self.world.controller
        if attempt is None or controller is None:
            return
        job, index, number = attempt
        for recovery in controller.store.live.of(Recovery).values():
            if recovery.job.id != job or recovery.status not in _HOLDING or recovery.open is None:
                continue
            is_gang = recovery.job.spec.coscheduled
            failed = [
                each.attempt for each in recovery.open.tasks if is_gang or each.index == index
            ]
            told = f"attempt {number} of task {index} of {job} began while it is {recovery.status}"
            self.expect(number <= max(failed, default=number), told)
            record = controller.store.live.kernels.get(kernel.start.kernel)
            if recovery.job.spec.recovers_whole and record is not None:
                self.expect(record.session.created_at <= recovery.open.began_at, told)


class FaultsChargeNobody(Invariant):
    """Judged once a round is over, by what it says of its machines and tasks."""

    says = "a failure is charged where no machine was at fault, and only there"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._failures: Counter[tuple[str, int]] = Counter()

    def committed(self, unit: Unit) -> None:
        for recovery in unit.touched[Recovery]:
            for each in recovery.kept[-1:]:
                if each.ended_at == unit.now and each.outcome is not None:
                    self._judge(recovery, each, each.outcome.code in _NO_FAULT, unit)
        for task in unit.touched[Task]:
            self._failures[task.job.id, task.index] = task.failure_count

    def _judge(self, recovery: Recovery, round_: Round, is_charged: bool, unit: Unit) -> None:
        job = recovery.job
        failures = {
            each.index: each.failure_count for each in unit.touched[Task] if each.job is job
        }
        at_fault = any(agent.result in FAULTS for agent in round_.agents)
        self.expect(not (at_fault and is_charged), f"{job.id} was charged for a fault: {round_}")
        for task in round_.tasks if is_charged else ():
            before = self._failures[job.id, task.index]
            charged = failures.get(task.index, before) - before
            self.expect(
                charged == task.charged, f"task {task.index} of {job.id} was charged {charged}"
            )


class RoundsEnd(Invariant):
    """Judged while the controller has nothing to do."""

    says = "a round waits for nothing that has happened, and for nothing beyond its limit"

    def between_steps(self) -> None:
        controller = self.world.controller
        if controller is None or not controller.is_idle:
            return
        live = controller.store.live
        for recovery in live.of(Recovery).values():
            if recovery.status in RECOVERY_TABLE.live and recovery.open is not None:
                for wrong in self._wrong(recovery, recovery.open, live):
                    self.expect(False, f"{recovery.job.id} is {recovery.status}: {wrong}")
                self.expect(True, "")

    def _wrong(self, recovery: Recovery, round_: Round, live: Live) -> Iterator[str]:
        spec, waited_s = _spec(recovery), self.now - NOTICED_S - recovery.status_changed_at
        job_tasks = recovery.job.tasks  # without those that succeeded before a restart
        tasks = [(each, job_tasks[each.index]) for each in round_.tasks if each.index in job_tasks]
        incidents = {each.id for each in live.of(Incident).values()}
        agents = (*round_.agents, *(() if recovery.next is None else recovery.next.agents))
        for agent in agents:
            if agent.result is AgentResult.AWAITED and agent.incident not in incidents:
                yield f"it waits for {agent.name}, of which nobody knows anything"
        match recovery.status:
            case RecoveryStatus.PENDING_HEALTHCHECK:
                is_over = all(task.session_id is None for _, task in tasks)
                if is_over and waited_s > spec.check_timeout:
                    yield f"it has waited for checks for {waited_s:.0f} s"
            case RecoveryStatus.PENDING_RESTART if waited_s > spec.return_timeout:
                yield f"it has waited for machines for {waited_s:.0f} s"
            case RecoveryStatus.RESTARTING:
                if all(task.attempt > each.attempt and task.started_at for each, task in tasks):
                    yield "its tasks run again"


class RecoveriesFollowJobs(Invariant):
    says = "a recovery is COMPLETE if its job succeeded, and over once its job is"

    def committed(self, unit: Unit) -> None:
        for recovery in unit.touched[Recovery]:
            job = recovery.job
            if recovery.status is RecoveryStatus.COMPLETE:
                right = job.status is JobState.SUCCEEDED
            else:
                is_over = recovery.status in RECOVERY_TABLE.terminal
                right = is_over is (job.status in JOB_TABLE.terminal)
            self.expect(right, f"{job.id} is {job.status}, and its recovery {recovery.status}")


def _with_rounds(unit: Unit) -> Iterator[Recovery]:
    return (each for each in unit.touched[Recovery] if each.open is not None or each.kept)


def _spec(recovery: Recovery) -> RecoverySpec:
    assert recovery.job.spec.recovery is not None, "only such jobs have one"
    return recovery.job.spec.recovery


INVARIANTS = [
    OneRecovery,
    OneRoundEach,
    RestartsAreBounded,
    LeavesCostNoRestart,
    NothingBeginsMeanwhile,
    FaultsChargeNobody,
    RoundsEnd,
    RecoveriesFollowJobs,
]
