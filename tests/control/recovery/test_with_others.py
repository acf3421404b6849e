"""A recovery together with other rules: preemption, `keep_going`, time limits, `muster retry`, and
requests to stop it."""

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.recovery.clinic import FAULTY, always_fails, clinic, fails
from tests.control.world import ADA, BOB
from tests.databases import ON_BOTH

from muster.control.job.requests import JobRequests, Retried
from muster.control.recovery.requests import RecoveryRequests
from muster.core.errors import NotFound
from muster.core.reasons import ReasonCode
from muster.core.states import JobState, TaskState
from muster.core.states.recovery import RecoveryStatus
from muster.store.records import Job

pytestmark = ON_BOTH

R = RecoveryStatus
PREEMPTION = {"minimum_lease": 0}


# -- preemption ----------------------------------------------------------------------------------


def test_task_that_is_displaced_during_the_check_of_another_is_charged_as_ever(
    worlds: MakeWorld,
) -> None:
    here = clinic(worlds, "ab", course=fails((1, 1)), preemption=PREEMPTION)
    job = here.job(tasks=2, max_retries_failure=1)
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_HEALTHCHECK)
    here.job(name="urgent", priority=90, recovery=None)
    here.run(1.0)
    assert recovery.status is R.PENDING_HEALTHCHECK
    assert recovery.open is not None
    assert [task.index for task in recovery.open.tasks] == [1]
    tasks = [job.tasks[0], job.tasks[1]]
    assert here.ended(job) is JobState.SUCCEEDED
    assert [(each.preemption_count, each.failure_count) for each in tasks] == [(1, 0), (0, 1)]
    assert recovery.rounds == 1


def test_job_that_waits_for_a_machine_cannot_be_displaced(worlds: MakeWorld) -> None:
    here = clinic(worlds, "ab", course=fails((0, 1)), checks={"a": [FAULTY]}, preemption=PREEMPTION)
    job = here.gang()
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_RESTART)
    urgent = here.job(name="urgent", priority=90, recovery=None)
    here.run(1.0)
    assert urgent.status is JobState.RUNNING
    tasks = [*job.tasks.values()]
    assert here.ended(job) is JobState.SUCCEEDED
    assert [task.preemption_count for task in tasks] == [0, 0]
    assert recovery.restarts == 1


def test_restart_that_is_displaced_begins_again_without_a_check(worlds: MakeWorld) -> None:
    here = clinic(worlds, "a", course=fails((0, 1)), checks={"a": [FAULTY]}, preemption=PREEMPTION)
    job = here.job()
    recovery = here.recovery(job)
    here.run_until(lambda: (0, 2) in here.ran_on)
    task = job.tasks[0]
    here.job(name="urgent", priority=90, recovery=None)
    assert here.ended(job) is JobState.SUCCEEDED
    assert (task.attempt, task.preemption_count, task.failure_count) == (3, 1, 0)
    assert (recovery.rounds, recovery.restarts) == (1, 1)


# -- keep_going ----------------------------------------------------------------------------------


def test_tasks_of_a_job_that_keeps_going_run_on_while_a_machine_heals(worlds: MakeWorld) -> None:
    here = clinic(worlds, "abc", course=fails((1, 1)), checks={name: [FAULTY] for name in "abc"})
    job = here.job(tasks=3, keep_going=True)
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_RESTART)
    here.run(1.0)
    assert job.counts[TaskState.RUNNING] == 2
    assert here.ended(job) is JobState.SUCCEEDED
    assert (recovery.status, recovery.restarts) == (R.COMPLETE, 1)


def test_job_that_keeps_going_ends_failed_once_the_others_have_ended(worlds: MakeWorld) -> None:
    here = clinic(worlds, "abc", course=fails((1, 1)), checks={name: [FAULTY] for name in "abc"})
    job = here.job(tasks=3, keep_going=True, recovery={"max_restarts": 0})
    recovery = here.recovery(job)
    here.run_until(lambda: bool(recovery.kept))
    assert (recovery.status, job.status) == (R.IN_PROGRESS, JobState.RUNNING)
    assert (job.counts[TaskState.FAILED], job.counts[TaskState.RUNNING]) == (1, 2)
    assert here.ended(job) is JobState.FAILED
    assert job.counts[TaskState.SUCCEEDED] == 2
    assert recovery.status is R.FAILED
    assert recovery.reason is not None
    assert recovery.reason.code is ReasonCode.RECOVERY_JOB_ENDED


# -- time limits ---------------------------------------------------------------------------------


def test_timeout_does_not_run_while_a_machine_is_waited_for(worlds: MakeWorld) -> None:
    here = clinic(worlds, "a", course=fails((0, 1)), checks={"a": [FAULTY]})
    here.never_return.add("a")
    job = here.job(timeout=60)
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_RESTART)
    here.run(200.0)
    assert recovery.status is R.PENDING_RESTART
    here.never_return.clear()
    assert here.ended(job) is JobState.SUCCEEDED


def test_attempt_that_runs_out_of_time_leads_to_no_check(worlds: MakeWorld) -> None:
    here = clinic(worlds, "a")
    job = here.job(timeout=20)
    recovery = here.recovery(job)
    assert here.ended(job) is JobState.KILLED
    assert (recovery.status, recovery.rounds, here.served) == (R.FAILED, 0, [])


def test_scheduling_timeout_counts_from_when_a_machine_is_no_longer_waited_for(
    worlds: MakeWorld,
) -> None:
    here = clinic(worlds, "a", course=fails((0, 1)), checks={"a": [FAULTY]})
    job = here.job(scheduling_timeout=30)
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_RESTART)
    here.course = lambda index, attempt: Run(1000.0)
    here.job(name="ahead", priority=90, recovery=None)
    here.until(recovery, R.RESTARTING)
    waits_since = here.world.clock.now()
    assert here.ended(job) is JobState.UNSCHEDULABLE
    assert 29.0 <= here.world.clock.now() - waits_since <= 32.0
    assert recovery.status is R.FAILED
    assert recovery.reason is not None
    assert recovery.reason.code is ReasonCode.RECOVERY_JOB_ENDED


def test_pending_timeout_of_the_group_ends_a_restart_that_waits_behind_others(
    worlds: MakeWorld,
) -> None:
    here = clinic(worlds, "a", course=fails((0, 1)), checks={"a": [FAULTY]}, pending_timeout=40)
    job = here.job(recovery={"restart_timeout": 10})
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_RESTART)
    here.course = lambda index, attempt: Run(1000.0)
    here.job(name="ahead", priority=90, recovery=None)
    here.until(recovery, R.RESTARTING)
    waits_since = here.world.clock.now()
    assert here.ended(job) is JobState.UNSCHEDULABLE
    assert 39.0 <= here.world.clock.now() - waits_since <= 42.0
    assert recovery.status is R.FAILED


# -- muster retry --------------------------------------------------------------------------------


def test_retry_of_a_job_has_a_recovery_of_its_own_and_finds_its_checkpoints(
    worlds: MakeWorld,
) -> None:
    here = clinic(worlds, "a", course=always_fails, checks={"a": [FAULTY]})
    job = here.job(name="train", recovery={"max_restarts": 0, "checkpoint_dir": "/shared/ckpt"})
    first = here.recovery(job)
    assert here.ended(job) is JobState.FAILED
    here.run_until(lambda: not here.incidents())
    here.course = lambda index, attempt: Run(50.0)

    retried = Retried(job.id, job.name, job.spec, None, 1)
    again: Job = here.world.ask(lambda work, parts: parts[JobRequests].retry(work, ADA, retried))
    recovery = here.recovery(again)
    assert recovery.id != first.id
    assert (recovery.status, recovery.rounds, recovery.restarts) == (R.IN_PROGRESS, 0, 0)
    here.run(1.0)
    (kernel,) = here.world.agent("a").running.values()
    environment = {**kernel.start.template.env, **kernel.start.env}
    assert environment["MUSTER_CHECKPOINT_DIR"] == "/shared/ckpt"
    assert environment["MUSTER_ATTEMPT"] == "1"
    assert here.ended(again) is JobState.SUCCEEDED
    assert (first.status, recovery.status) == (R.FAILED, R.COMPLETE)


# -- requests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [R.IN_PROGRESS, R.PENDING_HEALTHCHECK, R.PENDING_RESTART])
def test_recovery_is_stopped_with_its_job_and_machines_heal_on(
    worlds: MakeWorld, status: RecoveryStatus
) -> None:
    """From RESTARTING: `test_restart_that_waits_is_stopped_too`."""
    here = clinic(worlds, "ab", course=fails((0, 1)), checks={"a": [FAULTY]})
    job = here.gang()
    recovery = here.recovery(job)
    here.until(recovery, status)
    here.world.ask(lambda work, parts: parts[RecoveryRequests].stop(work, ADA, recovery.id))
    assert (recovery.status, job.status) == (R.USER_STOPPED, JobState.KILLED)
    assert bool(here.incidents()) is (status is not R.IN_PROGRESS)
    here.run_until(lambda: not here.incidents())
    assert set(here.ran_on) == {(0, 1), (1, 1)}
    with pytest.raises(NotFound):
        here.world.ask(lambda work, parts: parts[RecoveryRequests].stop(work, ADA, recovery.id))


def test_recovery_of_others_is_not_found(worlds: MakeWorld) -> None:
    here = clinic(worlds)
    recovery = here.recovery(here.job())
    with pytest.raises(NotFound):
        here.world.ask(lambda work, parts: parts[RecoveryRequests].stop(work, BOB, recovery.id))
    assert recovery.status is R.IN_PROGRESS
