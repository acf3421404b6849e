"""Each arrow of the state machine of a recovery (source: ECS GPU Recovery), and those that Muster
adds to it."""

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.recovery.clinic import (
    FAULTY,
    Clinic,
    always_fails,
    clinic,
    fails,
)
from tests.control.recovery_scenarios import isolated
from tests.control.world import ADA
from tests.databases import ON_BOTH

from muster.control.job.requests import JobRequests
from muster.control.recovery.entity import Recovery
from muster.control.recovery.requests import RecoveryRequests
from muster.control.recovery.rounds import AgentResult
from muster.core.health.service import ServiceName
from muster.core.reasons import ReasonCode
from muster.core.states import JobState, TaskState
from muster.core.states.recovery import RecoveryStatus

pytestmark = ON_BOTH

R = RecoveryStatus


def passed(world_of: Clinic, recovery: Recovery) -> list[str]:
    """The statuses that a recovery passed, as its history tells them."""
    from sqlalchemy import select

    from muster.store import schema

    history = schema.history
    rows = select(history.c.to_status).where(history.c.entity == recovery.name)
    with world_of.world.store.engine.connect() as connection:
        found = connection.execute(rows.order_by(history.c.seq)).scalars()
        return [each for each in found if each is not None]


def test_job_that_opts_in_has_a_recovery_from_its_own_commit_on(worlds: MakeWorld) -> None:
    here = clinic(worlds)
    assert here.recovery(here.job()).status is R.IN_PROGRESS
    here.job(recovery=None, name="plain")
    assert len(here.world.plane.live.of(Recovery)) == 1


def test_job_that_succeeds_ends_its_recovery_complete(worlds: MakeWorld) -> None:
    here = clinic(worlds)
    job = here.gang()
    recovery = here.recovery(job)
    assert here.ended(job) is JobState.SUCCEEDED
    assert recovery.status is R.COMPLETE
    assert passed(here, recovery) == [R.COMPLETE]
    assert not here.world.plane.live.of(Recovery)


def test_failed_task_has_all_machines_of_its_gang_checked_at_once(worlds: MakeWorld) -> None:
    here = clinic(worlds, course=fails((1, 1)))
    job = here.gang(max_retries_failure=1)
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_HEALTHCHECK)
    failed_at = recovery.status_changed_at
    here.run_until(lambda: len(here.served) == 2)
    assert here.world.clock.now() - failed_at <= 1.0
    checked = {name for name, _ in here.served}
    assert checked == {here.ran_on[0, 1], here.ran_on[1, 1]}
    assert recovery.open is not None
    assert recovery.open.charged == {1}
    assert job.status is JobState.RUNNING
    assert job.counts[TaskState.PENDING] == 2
    assert all(task.failure_count == 0 for task in job.tasks.values())


def test_healthy_machines_leave_it_to_the_tasks_own_retries(worlds: MakeWorld) -> None:
    here = clinic(worlds, course=fails((1, 1)))
    job = here.gang(max_retries_failure=1)
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_HEALTHCHECK)
    here.until(recovery, R.IN_PROGRESS)
    assert {i: task.failure_count for i, task in job.tasks.items()} == {0: 0, 1: 1}
    assert here.ended(job) is JobState.SUCCEEDED
    assert recovery.restarts == 0
    (round_,) = recovery.kept
    assert round_.outcome is not None
    assert round_.outcome.code is ReasonCode.RECOVERY_HEALTHY
    assert {agent.result for agent in round_.agents} == {AgentResult.HEALTHY}


def test_healthy_machines_without_a_retry_end_it_failed(worlds: MakeWorld) -> None:
    here = clinic(worlds, course=always_fails)
    job = here.gang()
    recovery = here.recovery(job)
    assert here.ended(job) is JobState.FAILED
    assert recovery.status is R.FAILED
    assert recovery.reason is not None
    assert recovery.reason.code is ReasonCode.RECOVERY_NO_FAULT
    assert passed(here, recovery) == [R.PENDING_HEALTHCHECK, R.FAILED]
    assert job.counts[TaskState.FAILED] == 1
    assert job.counts[TaskState.WORKER_FAILED] == 1


def test_faulty_machine_is_healed_and_the_gang_restarts_on_it(worlds: MakeWorld) -> None:
    here = clinic(worlds, "ab", course=fails((0, 1)), checks={"a": [FAULTY]})
    job = here.gang()
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_RESTART)
    here.until(recovery, R.RESTARTING, R.IN_PROGRESS)
    healed_at = recovery.status_changed_at
    here.run_until(lambda: (0, 2) in here.ran_on)
    assert here.world.clock.now() - healed_at <= 1.0
    assert here.ended(job) is JobState.SUCCEEDED
    assert recovery.restarts == 1
    assert ("a", ServiceName.REBOOT) in here.served
    assert {here.ran_on[0, 2], here.ran_on[1, 2]} == {"a", "b"}
    assert passed(here, recovery) == [
        R.PENDING_HEALTHCHECK,
        R.PENDING_RESTART,
        R.RESTARTING,
        R.IN_PROGRESS,
        R.COMPLETE,
    ]
    (round_,) = recovery.kept
    (healed,) = [agent for agent in round_.agents if agent.name == "a"]
    assert healed.result is AgentResult.HEALED
    assert healed.heals == 1
    assert "a planted fault" in healed.said
    assert round_.checked_at is not None
    assert round_.healed_at is not None
    assert round_.began_at < round_.checked_at < round_.healed_at
    assert recovery.lost_gpu_s > 2 * 20.0


def test_fault_charges_no_task(worlds: MakeWorld) -> None:
    here = clinic(worlds, "ab", course=fails((0, 1)), checks={"a": [FAULTY]})
    job = here.gang()
    here.run_until(lambda: (0, 2) in here.ran_on)
    here.run(1.0)
    assert [task.failure_count for task in job.tasks.values()] == [0, 0]
    assert [task.preemption_count for task in job.tasks.values()] == [0, 0]
    assert [task.attempt for task in job.tasks.values()] == [2, 2]


def test_fault_after_the_last_restart_ends_it_failed(worlds: MakeWorld) -> None:
    here = clinic(worlds, "ab", course=always_fails, checks={"a": [FAULTY, "", FAULTY, "", FAULTY]})
    here.checks["a"] = [each or found_healthy() for each in here.checks["a"]]
    job = here.gang(recovery={"max_restarts": 2})
    recovery = here.recovery(job)
    assert here.ended(job) is JobState.FAILED
    assert recovery.restarts == 2
    assert recovery.status is R.FAILED
    assert recovery.reason is not None
    assert recovery.reason.code is ReasonCode.RECOVERY_USED_UP
    assert passed(here, recovery)[-2:] == [R.PENDING_RESTART, R.FAILED]
    assert recovery.rounds == 3


def found_healthy() -> str:
    from tests.control.recovery.clinic import HEALTHY

    return HEALTHY


def test_job_whose_tasks_cannot_be_started_again_ends_failed(worlds: MakeWorld) -> None:
    def course(index: int, attempt: int) -> Run:
        if attempt == 1:
            return Run(5.0, exit_code=1)
        return Run(create_failure=ReasonCode.WORKDIR_MISSING)

    here = clinic(worlds, "ab", course=course, checks={"a": [FAULTY], "b": [FAULTY]})
    job = here.job()
    recovery = here.recovery(job)
    here.ended(job)
    assert job.status is not JobState.SUCCEEDED
    assert recovery.status is R.FAILED
    assert passed(here, recovery)[-2:] == [R.RESTARTING, R.FAILED]


@pytest.mark.parametrize("status", [R.IN_PROGRESS, R.PENDING_HEALTHCHECK, R.PENDING_RESTART])
def test_job_that_is_cancelled_ends_its_recovery_stopped(
    worlds: MakeWorld, status: RecoveryStatus
) -> None:
    here = clinic(worlds, "ab", course=fails((0, 1)), checks={"a": [FAULTY]})
    job = here.gang()
    recovery = here.recovery(job)
    here.until(recovery, status)
    here.world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, job.id))
    assert recovery.status is R.USER_STOPPED
    assert here.ended(job) is JobState.KILLED
    healing = status is R.PENDING_RESTART
    assert bool(here.incidents()) is (status is not R.IN_PROGRESS) or healing
    here.run_until(lambda: not here.incidents())  # the machines heal on


def test_restart_that_waits_is_stopped_too(worlds: MakeWorld) -> None:
    here = clinic(worlds, "a", course=fails((0, 1)), checks={"a": [FAULTY]})
    job = here.job(name="stopped")
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_RESTART)
    here.job(name="ahead", priority=90, recovery=None)  # it takes the machine first
    here.until(recovery, R.RESTARTING)
    here.world.ask(lambda work, parts: parts[RecoveryRequests].stop(work, ADA, recovery.id))
    assert recovery.status is R.USER_STOPPED
    assert job.status is JobState.KILLED


def test_failure_after_a_restart_is_a_round_of_its_own(worlds: MakeWorld) -> None:
    here = clinic(
        worlds, "ab", course=fails((0, 1), (1, 2)), checks={"a": [FAULTY], "b": [found_healthy()]}
    )
    job = here.gang(max_retries_failure=1)
    recovery = here.recovery(job)
    assert here.ended(job) is JobState.SUCCEEDED
    assert recovery.rounds == 2
    assert recovery.restarts == 1
    assert [each.number for each in recovery.kept] == [1, 2]


def test_failure_that_is_not_covered_is_judged_as_without_recovery(worlds: MakeWorld) -> None:
    here = clinic(worlds, course=fails((0, 1), code=3))
    job = here.gang(recovery={"exit_codes": [7]})
    recovery = here.recovery(job)
    assert here.ended(job) is JobState.FAILED
    assert passed(here, recovery) == [R.FAILED]
    assert not here.served


def test_lost_machine_costs_its_own_budget_and_no_check(worlds: MakeWorld) -> None:
    here = clinic(worlds, "ab")
    job = here.gang()
    recovery = here.recovery(job)
    here.run(10.0)
    agent = here.world.agent("a")
    agent.reboot()
    here.world.connect(agent)
    assert here.ended(job) is JobState.SUCCEEDED
    assert passed(here, recovery) == [R.COMPLETE]
    assert not here.served


def test_task_of_a_sweep_is_held_back_alone(worlds: MakeWorld) -> None:
    here = clinic(worlds, "abc", course=fails((1, 1)), checks={"b": [FAULTY]})
    job = here.job(tasks=3)
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_HEALTHCHECK)
    here.run(1.0)
    assert job.counts[TaskState.RUNNING] == 2
    assert job.counts[TaskState.PENDING] == 1
    assert {name for name, _ in here.served} == {here.ran_on[1, 1]}
    assert here.ended(job) is JobState.SUCCEEDED


def test_tolerated_task_is_given_up_and_the_job_goes_on(worlds: MakeWorld) -> None:
    here = clinic(worlds, "abc", course=fails((1, 1)), checks={"b": [FAULTY]})
    here.checks = {name: [FAULTY] for name in "abc"}
    job = here.job(tasks=3, max_task_failures=1, recovery={"max_restarts": 0})
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_HEALTHCHECK)
    here.until(recovery, R.IN_PROGRESS)
    assert job.counts[TaskState.FAILED] == 1
    assert here.ended(job) is JobState.SUCCEEDED
    assert passed(here, recovery) == [
        R.PENDING_HEALTHCHECK,
        R.PENDING_RESTART,
        R.IN_PROGRESS,
        R.COMPLETE,
    ]


def test_tasks_that_fail_together_are_one_round(worlds: MakeWorld) -> None:
    here = clinic(worlds, "abc", course=fails((0, 1), (1, 1)))
    job = here.job(tasks=3, max_retries_failure=1)
    recovery = here.recovery(job)
    assert here.ended(job) is JobState.SUCCEEDED
    assert recovery.rounds == 1
    assert [task.index for task in recovery.kept[0].tasks] == [0, 1]


def test_task_that_has_to_leave_during_the_check_of_another_is_charged_nothing(
    worlds: MakeWorld,
) -> None:
    here = clinic(worlds, "abcd", course=fails((1, 1)), health={"leave": 0})
    here.checks = {name: [FAULTY] for name in "abcd"}
    job = here.job(tasks=3)
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_HEALTHCHECK)
    isolated(here.world, here.ran_on[0, 1])
    here.run_until(lambda: len(recovery.kept) == 2)
    tasks = [(task.index, task.had_to_leave) for each in recovery.kept for task in each.tasks]
    assert tasks == [(0, True), (1, False)]  # what left waits for nobody
    assert recovery.restarts == 1  # a fault failed task 1
    assert [task.preemption_count for task in job.tasks.values()] == [0, 0, 0]
    assert here.ended(job) is JobState.SUCCEEDED


def test_work_that_has_to_leave_a_machine_is_restarted_elsewhere_and_charged_nothing(
    worlds: MakeWorld,
) -> None:
    here = clinic(worlds, "abc", health={"leave": 0})
    job = here.gang(recovery={"max_restarts": 0})
    recovery = here.recovery(job)
    here.run(5.0)
    isolated(here.world, here.ran_on[0, 1])
    here.run_until(lambda: bool(recovery.kept))
    assert (recovery.status, recovery.rounds, recovery.restarts) == (R.IN_PROGRESS, 1, 0)
    assert {here.ran_on[0, 2], here.ran_on[1, 2]} == set("abc") - {here.ran_on[0, 1]}
    assert [task.preemption_count for task in job.tasks.values()] == [0, 0]
    (round_,) = recovery.kept
    assert round_.why.code is ReasonCode.RECOVERY_MACHINE_LEFT
    assert [agent.result for agent in round_.agents] == [AgentResult.ISOLATED]
    assert not here.served
    assert here.ended(job) is JobState.SUCCEEDED
