"""Each wait of a recovery, with its limit."""

from collections.abc import Callable
from functools import partial

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.recovery.clinic import (
    CHECK_S,
    FAULTY,
    HEALTHY,
    UNKNOWN,
    Clinic,
    always_fails,
    clinic,
    fails,
)
from tests.control.recovery_scenarios import isolated
from tests.control.world import BOB
from tests.databases import ON_BOTH

from muster.control.recovery import attempts
from muster.control.recovery.rounds import AgentResult
from muster.core.health.service import ServiceName
from muster.core.reasons import ReasonCode
from muster.core.states import JobState, TaskState
from muster.core.states.recovery import RecoveryStatus

pytestmark = ON_BOTH

R = RecoveryStatus


def test_checks_that_hang_leave_it_to_the_tasks_own_retries(worlds: MakeWorld) -> None:
    here = clinic(worlds, course=fails((0, 1)))
    here.check_s = 1e6
    job = here.gang(max_retries_failure=1, recovery={"check_timeout": 60})
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_HEALTHCHECK)
    here.until(recovery, R.IN_PROGRESS)
    assert 60.0 <= here.world.clock.now() - recovery.kept[0].began_at <= 62.0
    outcome = recovery.kept[0].outcome
    assert outcome is not None
    assert outcome.code is ReasonCode.RECOVERY_UNCHECKED
    assert {i: task.failure_count for i, task in job.tasks.items()} == {0: 1, 1: 0}


def test_machines_of_a_group_without_checks_leave_it_to_the_retries(worlds: MakeWorld) -> None:
    here = clinic(worlds, course=always_fails)
    policy = here.world.plane.live.groups["default"].model_copy(update={"health": None})
    from muster.control.group.requests import GroupRequests

    here.world.ask(lambda work, parts: parts[GroupRequests].put_group(work, policy))
    job = here.gang(max_retries_failure=1)
    recovery = here.recovery(job)
    assert here.ended(job) is JobState.FAILED
    assert recovery.rounds == 2
    assert not here.served
    assert {a.result for each in recovery.kept for a in each.agents} == {AgentResult.UNCHECKED}


def test_unknown_machine_is_checked_again_before_it_counts(worlds: MakeWorld) -> None:
    here = clinic(worlds, "ab", course=fails((0, 1)), checks={"a": [UNKNOWN, HEALTHY]})
    job = here.gang(max_retries_failure=1)
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_HEALTHCHECK)
    here.until(recovery, R.IN_PROGRESS, R.PENDING_RESTART)
    assert recovery.status is R.IN_PROGRESS
    outcome = recovery.kept[0].outcome
    assert outcome is not None
    assert outcome.code is ReasonCode.RECOVERY_HEALTHY


def test_machine_that_does_not_return_is_replaced(worlds: MakeWorld) -> None:
    here = clinic(worlds, "abc", course=fails((0, 1)), checks={name: [FAULTY] for name in "a"})
    here.never_return.add("a")
    job = here.gang(
        recovery={"return_timeout": 120}, placement={"agents": ["a", "b"], "agents_only": False}
    )
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_RESTART)
    waits_since = here.world.clock.now()
    here.until(recovery, R.RESTARTING, R.IN_PROGRESS)
    assert 119.0 <= here.world.clock.now() - waits_since <= 121.0
    assert here.ended(job) is JobState.SUCCEEDED
    assert "a" not in {here.ran_on[0, 2], here.ran_on[1, 2]}


def test_machine_that_does_not_return_ends_it_failed_without_replace(worlds: MakeWorld) -> None:
    here = clinic(worlds, "abc", course=fails((0, 1)), checks={name: [FAULTY] for name in "abc"})
    here.never_return.update("abc")
    job = here.gang(recovery={"return_timeout": 120, "replace": False})
    recovery = here.recovery(job)
    assert here.ended(job) is JobState.FAILED
    assert recovery.status is R.FAILED
    assert recovery.reason is not None
    assert recovery.reason.code is ReasonCode.RECOVERY_NOT_RETURNED
    assert recovery.reason.numbers()["agent"] in "abc"
    assert job.counts[TaskState.FAILED] == 1


def test_isolated_machine_is_not_waited_for(worlds: MakeWorld) -> None:
    here = clinic(
        worlds,
        "abc",
        course=fails((0, 1)),
        checks={name: [FAULTY] * 9 for name in "a"},
        health={"rounds": 1},
    )
    job = here.gang(placement={"agents": ["a", "b"], "agents_only": False})
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_RESTART)
    waits_since = here.world.clock.now()
    here.until(recovery, R.RESTARTING, R.IN_PROGRESS)
    assert here.world.clock.now() - waits_since < 900.0
    assert here.ended(job) is JobState.SUCCEEDED
    assert {here.ran_on[0, 2], here.ran_on[1, 2]} == {"b", "c"}


def test_restart_that_cannot_begin_ends_it_failed(worlds: MakeWorld) -> None:
    """Its only machine is isolated, and no other will do."""
    here = clinic(
        worlds, "a", course=fails((0, 1)), checks={"a": [FAULTY] * 9}, health={"rounds": 1}
    )
    job = here.job(recovery={"restart_timeout": 300})
    recovery = here.recovery(job)
    here.until(recovery, R.RESTARTING)
    began = here.world.clock.now()
    assert here.ended(job) is JobState.FAILED
    assert 299.0 <= here.world.clock.now() - began <= 331.0
    assert recovery.reason is not None
    assert recovery.reason.code is ReasonCode.RECOVERY_NOT_STARTED
    assert not here.world.plane.live.sessions


def test_restart_that_waits_behind_others_has_no_limit_of_its_own(worlds: MakeWorld) -> None:
    def course(index: int, attempt: int) -> Run:
        return Run(5.0, exit_code=1) if attempt == 1 else Run(50.0)

    here = clinic(worlds, "a", course=course, checks={"a": [FAULTY]})
    job = here.job(recovery={"restart_timeout": 60})
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_RESTART)
    here.course = lambda index, attempt: Run(400.0)
    here.job(name="ahead", priority=90, recovery=None)
    here.until(recovery, R.RESTARTING)
    here.run(300.0)
    assert recovery.status is R.RESTARTING
    assert here.ended(job) is JobState.SUCCEEDED
    assert recovery.restarts == 1


def test_restart_is_not_bound_by_the_time_that_it_waited_before(worlds: MakeWorld) -> None:
    here = clinic(worlds, "a", course=fails((0, 1)), checks={"a": [FAULTY]})
    job = here.job(scheduling_timeout=30)
    assert here.ended(job) is JobState.SUCCEEDED


def test_tasks_that_merely_fail_have_a_machine_checked_three_times_an_hour(
    worlds: MakeWorld,
) -> None:
    here = clinic(worlds, "a", course=always_fails)
    job = here.job(tasks=50, keep_going=True, max_task_failures=50)
    assert here.ended(job) is JobState.SUCCEEDED or job.status is JobState.FAILED
    assert here.served == [("a", ServiceName.CHECK)] * 3
    here.world.run(3600.0, 60.0)
    here.ended(here.job())
    assert len(here.served) == 4


def test_tasks_that_fail_by_themselves_take_few_machines_from_others_at_a_time(
    worlds: MakeWorld,
) -> None:
    here = clinic(
        worlds,
        "abcd",
        course=fails(*((index, 1) for index in range(4))),
        health={"max_unhealthy": 0.5},
    )
    course, here.course = here.course, lambda index, attempt: Run(50.0)
    here.job(tasks=4, name="others", recovery=None, resources={"gpu": 0.6})
    here.course = course
    job = here.job(tasks=4, max_retries_failure=1, resources={"gpu": 0.4})
    here.until(here.recovery(job), R.PENDING_HEALTHCHECK)
    here.run(5.0)
    agents = here.world.plane.live.agents.values()
    assert sum(bool(each.ill) for each in agents) == 3  # one goes first, two have a turn
    assert not here.served
    here.run(40.0 + CHECK_S)
    assert sorted(name for name, _ in here.served) == [*"abcd"]  # nothing runs there any more
    assert here.ended(job) is JobState.SUCCEEDED


def most_checked_at_once(here: Clinic, until: Callable[[], bool]) -> int:
    """The most machines that took no work for their health at a time."""
    most = 0
    while not until():
        here.run(0.5)
        most = max(most, sum(bool(each.ill) for each in here.world.plane.live.agents.values()))
    return most


def test_machines_of_tasks_that_fail_together_are_checked_a_share_at_a_time(
    worlds: MakeWorld,
) -> None:
    course = fails(*((index, 1) for index in range(5)))
    here = clinic(worlds, "abcde", course=course, health={"max_unhealthy": 0.2})
    job = here.job(tasks=5, max_retries_failure=1)
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_HEALTHCHECK)
    most = most_checked_at_once(here, lambda: recovery.status is R.IN_PROGRESS)
    assert most == 2  # one that has the turn, and one that displaces nobody
    round_ = recovery.kept[0]
    assert {agent.result for agent in round_.agents} == {AgentResult.HEALTHY}
    assert here.world.clock.now() - round_.began_at <= 3 * CHECK_S + 5.0


def test_first_check_of_a_users_task_waits_for_no_turn_of_another_users(
    worlds: MakeWorld,
) -> None:
    course = fails((0, 1), (1, 1))
    here = clinic(worlds, "abc", health={"max_unhealthy": 0.3})
    here.job(tasks=3, name="others", recovery=None, resources={"gpu": 0.6})
    here.course = course
    adas = here.job(tasks=2, max_retries_failure=1, resources={"gpu": 0.4})
    bobs = here.job(principal=BOB, max_retries_failure=1, resources={"gpu": 0.4})
    here.until(here.recovery(adas), R.PENDING_HEALTHCHECK)
    here.until(here.recovery(bobs), R.PENDING_HEALTHCHECK)
    round_ = here.recovery(bobs).open
    assert round_ is not None
    (agent,) = round_.agents
    assert here.world.plane.live.agents[agent.id].ill


def test_gang_has_a_share_of_its_machines_checked_at_a_time_and_others_work_has_the_rest(
    worlds: MakeWorld,
) -> None:
    course = fails((0, 1))
    here = clinic(worlds, "abcd", course=course, health={"max_unhealthy": 0.25})
    gang = here.gang(tasks=4, max_retries_failure=1)
    recovery = here.recovery(gang)
    here.until(recovery, R.PENDING_HEALTHCHECK)
    here.course = lambda index, attempt: Run(5.0)
    others = here.job(principal=BOB, recovery=None)
    here.run(1.0)
    assert others.tasks[0].status is TaskState.RUNNING
    assert most_checked_at_once(here, lambda: recovery.status is R.IN_PROGRESS) == 2
    assert here.ended(gang) is JobState.SUCCEEDED


def test_work_that_has_to_leave_is_charged_once_that_happened_often(
    worlds: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "MAX_LEAVES", 2)
    here = clinic(worlds, "abcd", health={"leave": 0})
    job = here.job(max_retries_preemption=1)
    recovery = here.recovery(job)
    for attempt in range(1, 4):
        here.run_until(partial(here.ran_on.__contains__, (0, attempt)))
        isolated(here.world, here.ran_on[0, attempt])
    here.run_until(lambda: (0, 4) in here.ran_on)
    assert (recovery.rounds, recovery.leaves, recovery.restarts) == (2, 2, 0)
    assert job.tasks[0].preemption_count == 1
    isolated(here.world, here.ran_on[0, 4])
    assert here.ended(job) is JobState.FAILED


def test_checks_that_find_a_fault_do_not_count(worlds: MakeWorld) -> None:
    fails_often = fails(*((0, attempt) for attempt in range(1, 6)))
    here = clinic(worlds, "a", course=fails_often, checks={"a": [FAULTY, HEALTHY] * 5})
    job = here.job(recovery={"max_restarts": 5})
    assert here.ended(job) is JobState.SUCCEEDED
    checks = [each for each in here.served if each[1] is ServiceName.CHECK]
    assert len(checks) == 10
