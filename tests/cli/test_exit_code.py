import pytest
from tests.cli.fake_cluster import FakeCluster, because, job, kernel, task

from muster.cli.follow.exit_code import exit_code, first_failed
from muster.core.reasons import ReasonCode
from muster.core.states import JobState, TaskState
from muster.core.views.work import JobView, TaskDetail

FAILED = TaskState.FAILED


def code_of(ended: JobView, *tasks: TaskDetail) -> int:
    client = FakeCluster(tasks_=list(tasks)).client()
    return exit_code(client, ended, first_failed(client, ended))


@pytest.mark.parametrize(
    ("failed", "code"),
    [
        (task(3, FAILED, (kernel(exit_code=7),), exit_code=7), 7),
        (task(3, FAILED, (kernel(exit_code=1), kernel(2, signal=9))), 137),
        (task(3, FAILED, reason=because(ReasonCode.COMMAND_NOT_FOUND, detail="x")), 127),
        (task(3, FAILED, reason=because(ReasonCode.COMMAND_NOT_EXECUTABLE, detail="x")), 126),
        (task(3, FAILED, reason=because(ReasonCode.WORKDIR_MISSING, detail="/x")), 1),
        # Ended with 0 and failed nevertheless: never a success.
        (task(3, FAILED, (kernel(exit_code=0),), exit_code=0), 1),
    ],
)
def test_failed_job_ends_with_the_code_of_its_first_failed_task(
    failed: TaskDetail, code: int
) -> None:
    others = task(0), task(5, FAILED, exit_code=99)
    assert code_of(job(state=JobState.FAILED), others[0], failed, others[1]) == code


def test_job_that_succeeded_with_tolerated_failures_ends_well() -> None:
    assert code_of(job(state=JobState.SUCCEEDED), task(0, FAILED, exit_code=3)) == 0


def test_job_that_lost_its_machines_is_failed_without_a_task_to_blame() -> None:
    assert code_of(job(state=JobState.FAILED), task(0, TaskState.WORKER_FAILED)) == 1


def test_job_that_ran_too_long_ends_with_124_whichever_task_it_was() -> None:
    timeout = because(ReasonCode.TIMEOUT, timeout_s=3)
    stopped = task(0, TaskState.KILLED, reason=because(ReasonCode.JOB_ENDED, state="KILLED"))
    culprit = task(1, TaskState.KILLED, reason=timeout)
    assert code_of(job(state=JobState.KILLED), stopped, culprit) == 124
    assert code_of(job(state=JobState.KILLED, reason=timeout)) == 124


def test_cancelled_job_ends_with_130_whoever_did_it() -> None:
    cancelled = job(state=JobState.KILLED, reason=because(ReasonCode.CANCELLED, by="ann"))
    stopped = task(0, TaskState.KILLED, (kernel(signal=15),))
    assert code_of(cancelled, stopped) == 130


def test_job_that_never_found_room_is_failed() -> None:
    assert code_of(job(state=JobState.UNSCHEDULABLE)) == 1
