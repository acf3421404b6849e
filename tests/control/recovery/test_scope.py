"""A job with `recovery: {scope: job}`: with one failure all tasks stop, and begin again
together."""

from sqlalchemy import select
from tests.control.conftest import MakeWorld
from tests.control.recovery.clinic import FAULTY, clinic, fails
from tests.databases import ON_BOTH

from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec
from muster.core.states import JobState, TaskState
from muster.core.states.recovery import RecoveryStatus
from muster.store import schema

pytestmark = ON_BOTH

R = RecoveryStatus
WHOLE = {"scope": "job"}


def test_all_tasks_of_a_sweep_stop_with_the_first_failure_and_begin_again_with_it(
    worlds: MakeWorld,
) -> None:
    here = clinic(worlds, "abc", course=fails((1, 1)), checks={name: [FAULTY] for name in "abc"})
    job = here.job(tasks=4, recovery=WHOLE)  # the fourth task waits in the queue
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_HEALTHCHECK)
    here.run(2.0)
    assert job.counts[TaskState.PENDING] == 4
    assert not job.counts.get(TaskState.RUNNING)
    assert {name for name, _ in here.served} == {here.ran_on[1, 1]}
    here.until(recovery, R.PENDING_RESTART)
    here.run(1.0)
    assert job.counts[TaskState.PENDING] == 4
    assert set(here.ran_on) == {(0, 1), (1, 1), (2, 1)}
    tasks = [*job.tasks.values()]
    assert here.ended(job) is JobState.SUCCEEDED
    assert {(task.failure_count, task.preemption_count) for task in tasks} == {(0, 0)}
    assert {(0, 2), (1, 2), (2, 2)} <= set(here.ran_on)
    assert (recovery.status, recovery.restarts) == (R.COMPLETE, 1)
    history = schema.history.c
    stopped = select(history.entity).where(
        history.reasons.contains(ReasonCode.RECOVERY_STOPS_ALL), history.to_status == "TERMINATING"
    )
    with here.world.store.engine.connect() as connection:
        assert len(connection.execute(stopped).all()) >= 2


def test_stopped_tasks_begin_again_where_the_retries_of_the_failed_one_decide(
    worlds: MakeWorld,
) -> None:
    here = clinic(worlds, "abc", course=fails((1, 1)))
    job = here.job(tasks=3, recovery=WHOLE, max_retries_failure=1)
    recovery = here.recovery(job)
    tasks = job.tasks
    here.run_until(lambda: {(0, 2), (1, 2), (2, 2)} <= set(here.ran_on), 60.0)
    charges = {i: (task.failure_count, task.preemption_count) for i, task in tasks.items()}
    assert charges == {0: (0, 0), 1: (1, 0), 2: (0, 0)}
    assert here.ended(job) is JobState.SUCCEEDED
    assert recovery.restarts == 0


def test_task_without_a_retry_ends_the_job_though_others_were_stopped(worlds: MakeWorld) -> None:
    here = clinic(worlds, "abc", course=fails((1, 1)))
    job = here.job(tasks=3, recovery=WHOLE)
    assert here.ended(job) is JobState.FAILED
    assert set(here.ran_on) == {(0, 1), (1, 1), (2, 1)}
    assert not here.world.plane.live.sessions


def test_tasks_stay_stopped_over_a_restart_of_the_controller(worlds: MakeWorld) -> None:
    here = clinic(worlds, "abc", course=fails((1, 1)), checks={name: [FAULTY] for name in "abc"})
    here.never_return.update("abc")
    job = here.job(tasks=3, recovery=WHOLE)
    here.until(here.recovery(job), R.PENDING_RESTART)
    here.world.restart_controller()
    here.run(30.0)
    assert set(here.ran_on) == {(0, 1), (1, 1), (2, 1)}
    here.never_return.clear()
    here.run_until(lambda: {(0, 2), (1, 2), (2, 2)} <= set(here.ran_on))


def test_scope_is_the_job_for_gangs_and_the_task_for_others() -> None:
    job = {"command": ["x"], "tasks": 2}
    sweep = JobSpec.model_validate({**job, "recovery": True})
    gang = JobSpec.model_validate({**job, "recovery": True, "coscheduled": True})
    whole = JobSpec.model_validate({**job, "recovery": WHOLE})
    assert [each.recovers_whole for each in (sweep, gang, whole)] == [False, True, True]
    apart = {**job, "recovery": {"scope": "task"}, "coscheduled": True}
    (problem,) = JobSpec.model_validate(apart).contradictions()
    assert problem.field == "recovery.scope"
