"""Recoveries of jobs from broken machines: what they may never do, whatever befalls machines."""

from collections import Counter

from muster.control.recovery.entity import Recovery
from muster.core.states import JOB_TABLE, JobState
from muster.core.states.recovery import RECOVERY_TABLE, RecoveryStatus
from muster.simulate.hollow.agent import HollowAgent
from muster.simulate.hollow.supervisor import Kernel
from muster.simulate.swarm.chance import attempt_of
from muster.simulate.swarm.judge import Invariant
from muster.store.unit import Unit

_HOLDING = frozenset({RecoveryStatus.PENDING_HEALTHCHECK, RecoveryStatus.PENDING_RESTART})


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


class RestartsAreBounded(Invariant):
    says = "a job is restarted for faults of machines no more often than its spec says"

    def committed(self, unit: Unit) -> None:
        for recovery in unit.touched[Recovery]:
            spec = recovery.job.spec.recovery
            self.expect(
                spec is not None and recovery.restarts <= spec.max_restarts,
                f"{recovery.job.id} was restarted {recovery.restarts} times",
            )


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
    """Judged on the machines: of a gang nothing, of other jobs no task whose attempt failed."""

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
            self.expect(
                number <= max(failed, default=number),
                f"attempt {number} of task {index} of {job} began while it is {recovery.status}",
            )


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


INVARIANTS = [
    OneRecovery,
    RestartsAreBounded,
    LeavesCostNoRestart,
    NothingBeginsMeanwhile,
    RecoveriesFollowJobs,
]
