"""A failed task of a sweep waits for its own machine alone, whatever other machines of the job
need."""

from collections.abc import Mapping, Sequence

from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.recovery.clinic import FAULTY, Course, clinic
from tests.databases import ON_BOTH

from muster.control.recovery.entity import Recovery
from muster.core.reasons import ReasonCode
from muster.core.states import JobState
from muster.core.states.recovery import RecoveryStatus

pytestmark = ON_BOTH

R = RecoveryStatus
SOON_S = 60.0
"""Time for a check, a reboot and a start; much less than the wait for a machine."""


def fail_after(seconds: Mapping[int, float]) -> Course:
    """A course in which the first attempts of these tasks fail after so many seconds."""

    def course(index: int, attempt: int) -> Run:
        fails = attempt == 1 and index in seconds
        return Run(seconds[index], exit_code=1) if fails else Run(50.0)

    return course


def outcomes(recovery: Recovery) -> Sequence[tuple[int, ReasonCode | None]]:
    """The first task of each round that is over, and how the round ended."""
    return [
        (each.tasks[0].index, None if each.outcome is None else each.outcome.code)
        for each in recovery.kept
    ]


def test_task_on_a_healthy_machine_is_not_held_while_another_tasks_machine_heals(
    worlds: MakeWorld,
) -> None:
    here = clinic(worlds, "abc", course=fail_after({0: 5.0, 1: 5.0}), checks={"a": [FAULTY]})
    here.never_return.add("a")
    job = here.job(tasks=2, max_retries_failure=1)
    recovery = here.recovery(job)
    here.run_until(lambda: (1, 2) in here.ran_on, SOON_S)
    assert recovery.status is R.PENDING_RESTART
    assert recovery.open is not None
    assert [task.index for task in recovery.open.tasks] == [0]
    assert [agent.name for agent in recovery.open.agents] == ["a"]
    assert outcomes(recovery) == [(1, ReasonCode.RECOVERY_HEALTHY)]
    assert {i: task.failure_count for i, task in job.tasks.items()} == {0: 0, 1: 1}
    here.never_return.clear()
    assert here.ended(job) is JobState.SUCCEEDED
    assert (recovery.rounds, recovery.restarts) == (2, 1)


def test_task_that_fails_while_another_tasks_machine_heals_is_judged_by_its_own(
    worlds: MakeWorld,
) -> None:
    here = clinic(worlds, "abc", course=fail_after({0: 5.0, 1: 40.0}), checks={"a": [FAULTY]})
    here.never_return.add("a")
    job = here.job(tasks=2, max_retries_failure=1)
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_RESTART)
    here.run_until(lambda: recovery.next is not None)
    here.run_until(lambda: (1, 2) in here.ran_on, SOON_S)
    assert recovery.status is R.PENDING_RESTART
    assert recovery.next is None
    assert outcomes(recovery) == [(1, ReasonCode.RECOVERY_HEALTHY)]
    assert job.tasks[1].failure_count == 1


def test_task_whose_own_machine_is_healed_begins_on_it_while_another_heals(
    worlds: MakeWorld,
) -> None:
    course = fail_after({0: 5.0, 1: 5.0})
    here = clinic(worlds, "abc", course=course, checks={"a": [FAULTY], "b": [FAULTY]})
    here.never_return.add("a")
    job = here.job(tasks=2)
    recovery = here.recovery(job)
    here.run_until(lambda: (1, 2) in here.ran_on, 2 * SOON_S)
    assert here.ran_on[1, 2] == "b"
    assert recovery.status is R.PENDING_RESTART
    assert outcomes(recovery) == [(1, ReasonCode.RECOVERY_HEALED)]
    assert recovery.restarts == 1
    here.never_return.clear()
    assert here.ended(job) is JobState.SUCCEEDED
    assert recovery.restarts == 1  # both failed at the same time: it is one restart


def test_task_on_a_healthy_machine_is_not_given_up_with_one_on_a_faulty_machine(
    worlds: MakeWorld,
) -> None:
    here = clinic(worlds, "abc", course=fail_after({0: 5.0, 1: 5.0}), checks={"a": [FAULTY]})
    job = here.job(
        tasks=2, max_retries_failure=1, max_task_failures=1, recovery={"max_restarts": 0}
    )
    recovery = here.recovery(job)
    here.run_until(lambda: (1, 2) in here.ran_on, SOON_S)
    assert here.ended(job) is JobState.SUCCEEDED
    assert {*outcomes(recovery)} == {
        (0, ReasonCode.RECOVERY_USED_UP),
        (1, ReasonCode.RECOVERY_HEALTHY),
    }


def test_tasks_wait_for_their_own_machines_over_a_restart_of_the_controller(
    worlds: MakeWorld,
) -> None:
    here = clinic(worlds, "abc", course=fail_after({0: 5.0, 1: 5.0}), checks={"a": [FAULTY]})
    here.never_return.add("a")
    job = here.job(tasks=2, max_retries_failure=1)
    here.until(here.recovery(job), R.PENDING_HEALTHCHECK)
    here.world.restart_controller()
    here.run_until(lambda: (1, 2) in here.ran_on, SOON_S)
    assert here.recovery(job).status is R.PENDING_RESTART
