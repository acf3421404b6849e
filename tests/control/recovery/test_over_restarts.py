"""A controller that is killed and started again while a recovery waits."""

import pytest
from tests.control.conftest import MakeWorld
from tests.control.recovery.clinic import FAULTY, HEALTHY, clinic, fails
from tests.databases import ON_BOTH

from muster.control.recovery.entity import Recovery
from muster.core.states import JOB_TABLE, JobState
from muster.core.states.recovery import RecoveryStatus

pytestmark = ON_BOTH

R = RecoveryStatus
WAITING = [R.IN_PROGRESS, R.PENDING_HEALTHCHECK, R.PENDING_RESTART, R.RESTARTING]


@pytest.mark.parametrize("status", WAITING)
def test_recovery_goes_on_after_a_restart_of_the_controller(
    worlds: MakeWorld, status: RecoveryStatus
) -> None:
    here = clinic(worlds, "ab", course=fails((0, 1)), checks={"a": [FAULTY], "b": [HEALTHY]})
    job = here.gang()
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_RESTART) if status is R.RESTARTING else None
    if status is R.RESTARTING:  # it finds no room, so that it stays in this status
        here.job(tasks=2, coscheduled=True, name="ahead", priority=90, recovery=None)
    here.until(recovery, status)
    held = {index: task.attempt for index, task in job.tasks.items()}
    before = recovery.open, recovery.next, recovery.restarts

    here.world.restart_controller()
    again = here.recovery(job)
    assert (again.open, again.next, again.restarts) == before
    assert again.status is status
    live = here.world.plane.live.jobs[job.id]
    assert {index: task.attempt for index, task in live.tasks.items()} == held

    here.run_until(lambda: live.status in JOB_TABLE.terminal)
    assert live.status is JobState.SUCCEEDED
    assert again.restarts == 1
    assert not here.world.plane.live.of(Recovery)


def test_held_tasks_begin_nothing_after_a_restart(worlds: MakeWorld) -> None:
    here = clinic(worlds, "ab", course=fails((0, 1)))
    here.check_s = 500.0
    job = here.gang(max_retries_failure=1)
    here.until(here.recovery(job), R.PENDING_HEALTHCHECK)
    here.run(5.0)
    here.world.restart_controller()
    here.run(60.0)
    assert set(here.ran_on) == {(0, 1), (1, 1)}
