"""Verdicts on attempts (design: Verdicts on gangs), and a job's state (design: Job derivation)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.control.job.judge import Attempt, Budget, attempt_state, derive_job, judge, judge_gang
from muster.core.reasons import ReasonCode
from muster.core.reasons.catalogue import reason_of
from muster.core.reasons.of_kernels import (
    AgentLost,
    Exited,
    KernelNotCreated,
    NeverStarted,
    Stopped,
    Timeout,
)
from muster.core.reasons.of_sessions import KernelEnded, SchedulingTimeout
from muster.core.states import JOB_TABLE, TASK_TABLE, JobState, KernelStatus, TaskState

NO_RETRY = Budget(0, 0, 0, 0)


def ended(exit_code: int, at: float = 1.0) -> Attempt:
    why = Exited(exit_code=exit_code)
    return Attempt(KernelStatus.TERMINATED, exit_code, at, True, why, None)


def lost(*, started: bool = True) -> Attempt:
    why = AgentLost(agent="a")
    return Attempt(KernelStatus.ERROR, None, 1.0, started, why, None)


def stopped(by: ReasonCode | None = None) -> Attempt:
    why = Stopped(detail="x")
    session = reason_of(by, {}) if by else KernelEnded(index=0, how="x")
    return Attempt(KernelStatus.TERMINATED, None, 2.0, True, why, session)


@pytest.mark.parametrize(
    ("attempt", "state"),
    [
        (ended(0), TaskState.SUCCEEDED),
        (ended(1), TaskState.FAILED),
        (lost(), TaskState.WORKER_FAILED),
        (lost(started=False), TaskState.PENDING),
        (stopped(ReasonCode.CANCELLED), TaskState.KILLED),
        (stopped(ReasonCode.TIMEOUT), TaskState.KILLED),
        (
            Attempt(
                KernelStatus.CANCELLED, None, None, False, None,
                SchedulingTimeout(timeout_s=1),
            ),
            TaskState.UNSCHEDULABLE,
        ),
    ],
)  # fmt: skip
def test_outcome_of_an_attempt(attempt: Attempt, state: TaskState) -> None:
    assert attempt_state(attempt) is state


def never_begun(*, let_go: bool) -> Attempt:
    why = NeverStarted(agent="a")
    return Attempt(KernelStatus.TERMINATED, None, 1.5, False, why, None, let_go)


def test_gang_that_was_not_let_go_charges_nobody_for_a_lost_member() -> None:
    gang = [lost(started=False), never_begun(let_go=False), never_begun(let_go=False)]
    verdicts = judge_gang(gang, [NO_RETRY] * 3)
    assert [each.state for each in verdicts] == [TaskState.PENDING] * 3
    assert not any(each.preemption_count or each.failure_count for each in verdicts)


def test_member_that_had_not_begun_when_another_failed_is_not_to_blame() -> None:
    gang = [ended(1), never_begun(let_go=True)]
    failed, stopped_ = judge_gang(gang, [Budget(0, 0, 1, 1)] * 2)
    assert (failed.failure_count, stopped_.preemption_count) == (1, 0)


def test_member_that_could_not_be_started_once_its_gang_was_let_go_is_charged() -> None:
    gang = [stopped(), never_begun(let_go=True)]
    _, unbegun = judge_gang(gang, [Budget(0, 0, 1, 1)] * 2)
    assert unbegun.preemption_count == 1


def test_members_that_could_not_be_started_are_charged_alike_however_their_ends_were_told() -> None:
    gave_up, failed = never_begun(let_go=True), replace(never_begun(let_go=True), ended_at=1.4)
    failed = replace(failed, kernel_reason=KernelNotCreated(agent="b", detail="x"))
    verdicts = judge_gang([ended(0), gave_up, failed], [Budget(0, 0, 0, 1)] * 3)
    assert [each.preemption_count for each in verdicts] == [0, 1, 1]


def test_task_that_ended_well_before_it_was_stopped_has_succeeded() -> None:
    late = replace(ended(0), session_reason=Timeout(timeout_s=1))
    assert attempt_state(late) is TaskState.SUCCEEDED


@given(st.integers(0, 5), st.integers(0, 5))
def test_failures_are_retried_while_the_counter_does_not_exceed_the_limit(
    count: int, limit: int
) -> None:
    verdict = judge(ended(1), Budget(count, 0, limit, 0))
    assert verdict.failure_count == count + 1
    assert (verdict.state is TaskState.PENDING) == (count + 1 <= limit)
    assert verdict.preemption_count == 0


@given(st.integers(0, 5), st.integers(0, 5))
def test_lost_machines_charge_the_preemption_budget_only(count: int, limit: int) -> None:
    verdict = judge(lost(), Budget(0, count, 0, limit))
    assert (verdict.state is TaskState.PENDING) == (count + 1 <= limit)
    assert verdict.failure_count == 0


def test_attempt_lost_before_it_began_charges_nothing() -> None:
    verdict = judge(lost(started=False), NO_RETRY)
    assert verdict.state is TaskState.PENDING
    assert verdict.preemption_count == 0


def test_only_the_first_failure_of_a_gang_is_charged() -> None:
    budget = Budget(0, 0, 1, 0)
    attempts = [ended(1, at=5.0), ended(1, at=4.0), stopped()]
    verdicts = judge_gang(attempts, [budget] * 3)
    assert [verdict.failure_count for verdict in verdicts] == [0, 1, 0]
    assert {verdict.state for verdict in verdicts} == {TaskState.PENDING}


@pytest.mark.parametrize("culprit", [0, 1])
def test_member_of_a_gang_whose_end_nobody_saw_is_not_taken_for_the_first_to_fail(
    culprit: int,
) -> None:
    attempts = [ended(1), replace(stopped(), ended_at=None, kernel_reason=None)]
    verdicts = judge_gang(attempts[:: -1 if culprit else 1], [NO_RETRY] * 2)
    assert verdicts[culprit].state is TaskState.FAILED
    assert verdicts[culprit].failure_count == 1
    assert verdicts[1 - culprit].state is TaskState.WORKER_FAILED
    assert verdicts[1 - culprit].failure_count == 0


def test_gang_without_budget_ends_the_culprit_failed_and_its_siblings_worker_failed() -> None:
    verdicts = judge_gang([ended(0), ended(2), stopped()], [NO_RETRY] * 3)
    assert [verdict.state for verdict in verdicts] == [
        TaskState.SUCCEEDED,
        TaskState.FAILED,
        TaskState.WORKER_FAILED,
    ]


def test_preemption_budget_of_siblings_reads_as_exhausted_once_their_gang_failed_for_good() -> None:
    budgets = [Budget(0, 0, 0, 100), Budget(0, 3, 0, 100), Budget(0, 0, 0, 100)]
    failed, sibling, succeeded = judge_gang([ended(2), stopped(), ended(0)], budgets)
    assert (failed.state, failed.preemption_count) == (TaskState.FAILED, 0)
    assert (sibling.state, sibling.preemption_count) == (TaskState.WORKER_FAILED, 101)
    assert (succeeded.state, succeeded.preemption_count) == (TaskState.SUCCEEDED, 0)
    assert (failed.is_sibling, sibling.is_sibling) == (False, True)


def test_gang_begins_again_with_all_of_its_tasks_or_none() -> None:
    budgets = [Budget(0, 1, 0, 1), Budget(0, 0, 0, 1)]  # the first has lost a machine before
    verdicts = judge_gang([lost(), lost()], budgets)
    assert [(v.state, v.preemption_count) for v in verdicts] == [
        (TaskState.WORKER_FAILED, 2),
        (TaskState.WORKER_FAILED, 2),  # its gang ended for good, and its budget with it
    ]


attempts = st.builds(
    lambda how, code, at, by: replace(
        how, ended_at=at, session_reason=by and reason_of(by, {"timeout_s": 1}), exit_code=code(how)
    ),
    st.sampled_from([ended(0), ended(1), lost(), lost(started=False), stopped()]),
    st.just(lambda how: how.exit_code),
    st.sampled_from([1.0, 3.0, 30.0]),
    st.sampled_from([None, ReasonCode.TIMEOUT, ReasonCode.CANCELLED, ReasonCode.PREEMPTED]),
)
left = st.builds(
    Budget,
    st.integers(0, 2),
    st.integers(0, 2),
    st.just(1),
    st.just(1),
    st.integers(0, 2),
    st.sampled_from([None, 1]),
)


@given(st.lists(st.tuples(attempts, left), min_size=2, max_size=4), st.sampled_from([None, 0, 1]))
def test_verdicts_on_a_gang_never_have_some_of_its_tasks_wait_for_others_that_have_ended(
    members: list[tuple[Attempt, Budget]], leader: int | None
) -> None:
    gang, budgets = [attempt for attempt, _ in members], [budget for _, budget in members]
    states = {verdict.state for verdict in judge_gang(gang, budgets, leader)}
    assert states == {TaskState.PENDING} or TaskState.PENDING not in states


def test_gang_that_was_cancelled_is_killed_but_for_what_had_succeeded() -> None:
    verdicts = judge_gang([ended(0), stopped(ReasonCode.CANCELLED)], [NO_RETRY] * 2)
    assert [verdict.state for verdict in verdicts] == [TaskState.SUCCEEDED, TaskState.KILLED]


@pytest.mark.parametrize(
    ("counts", "tolerated", "state"),
    [
        ({}, 0, JobState.PENDING),
        ({TaskState.SUCCEEDED: 3}, 0, JobState.SUCCEEDED),
        ({TaskState.SUCCEEDED: 1, TaskState.FAILED: 1}, 0, JobState.FAILED),
        ({TaskState.SUCCEEDED: 1, TaskState.FAILED: 1}, 1, JobState.PENDING),
        ({TaskState.SUCCEEDED: 2, TaskState.FAILED: 1}, 1, JobState.SUCCEEDED),
        ({TaskState.UNSCHEDULABLE: 1, TaskState.KILLED: 1}, 0, JobState.UNSCHEDULABLE),
        ({TaskState.KILLED: 1, TaskState.RUNNING: 1}, 0, JobState.KILLED),
        ({TaskState.RUNNING: 1}, 0, JobState.RUNNING),
        ({TaskState.ASSIGNED: 1}, 0, JobState.RUNNING),
        ({TaskState.SUCCEEDED: 2, TaskState.WORKER_FAILED: 1}, 0, JobState.FAILED),
        ({TaskState.SUCCEEDED: 1, TaskState.WORKER_FAILED: 1}, 0, JobState.PENDING),
        ({TaskState.SUCCEEDED: 2}, 0, JobState.PENDING),
        ({TaskState.SUCCEEDED: 1, TaskState.FAILED: 2}, 5, JobState.SUCCEEDED),
        ({TaskState.FAILED: 2}, 5, JobState.PENDING),
        ({TaskState.FAILED: 3}, 5, JobState.FAILED),
    ],
)
def test_state_of_a_job_of_three_tasks(
    counts: dict[TaskState, int], tolerated: int, state: JobState
) -> None:
    assert derive_job(JobState.PENDING, 3, counts, tolerated) is state


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ({TaskState.FAILED: 2}, JobState.RUNNING),
        ({TaskState.FAILED: 1, TaskState.KILLED: 1, TaskState.RUNNING: 1}, JobState.RUNNING),
        ({TaskState.SUCCEEDED: 2, TaskState.FAILED: 1}, JobState.FAILED),
        ({TaskState.KILLED: 2, TaskState.FAILED: 1}, JobState.FAILED),
        ({TaskState.UNSCHEDULABLE: 1, TaskState.KILLED: 2}, JobState.UNSCHEDULABLE),
        ({TaskState.SUCCEEDED: 2, TaskState.KILLED: 1}, JobState.KILLED),
        ({TaskState.SUCCEEDED: 2, TaskState.WORKER_FAILED: 1}, JobState.FAILED),
        ({TaskState.SUCCEEDED: 3}, JobState.SUCCEEDED),
    ],
)
def test_job_that_keeps_going_ends_with_its_last_task(
    counts: dict[TaskState, int], state: JobState
) -> None:
    assert derive_job(JobState.RUNNING, 3, counts, 0, keep_going=True) is state


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ({TaskState.FAILED: 2, TaskState.KILLED: 1}, JobState.FAILED),
        ({TaskState.FAILED: 1, TaskState.KILLED: 2}, JobState.FAILED),
        ({TaskState.SUCCEEDED: 1, TaskState.FAILED: 1, TaskState.KILLED: 1}, JobState.SUCCEEDED),
    ],
)
@pytest.mark.parametrize("keep_going", [False, True])
def test_job_of_which_no_task_succeeded_has_failed_though_people_stopped_some(
    counts: dict[TaskState, int], state: JobState, keep_going: bool
) -> None:
    stopped = counts[TaskState.KILLED]
    derived = derive_job(JobState.RUNNING, 3, counts, 5, keep_going=keep_going, stopped=stopped)
    assert derived is state


@given(st.sampled_from([JobState.SUCCEEDED, JobState.FAILED, JobState.KILLED]))
def test_ended_job_stays_as_it_is(state: JobState) -> None:
    assert derive_job(state, 3, {TaskState.RUNNING: 3}, 0) is state


@pytest.mark.parametrize(
    ("lost_at", "machine"), [(0.0, True), (11.0, True), (14.9, True), (15.1, False), (60.0, False)]
)
def test_machine_is_charged_before_the_task_where_nobody_can_tell_who_was_first(
    lost_at: float, machine: bool
) -> None:
    budget = Budget(0, 0, 3, 3)
    verdicts = judge_gang([ended(1, at=10.0), replace(lost(), ended_at=lost_at)], [budget] * 2)
    charged = [(verdict.failure_count, verdict.preemption_count) for verdict in verdicts]
    assert charged == ([(0, 0), (0, 1)] if machine else [(1, 0), (0, 0)])


_ENDS = [state for state in TaskState if state in TASK_TABLE.terminal - {TaskState.UNSPECIFIED}]


@given(
    ended=st.dictionaries(st.sampled_from(_ENDS), st.integers(0, 5)),
    left=st.integers(0, 3),
    running=st.booleans(),
    tolerated=st.integers(0, 5),
)
def test_job_that_keeps_going_ends_exactly_when_all_of_its_tasks_have(
    ended: dict[TaskState, int], left: int, running: bool, tolerated: int
) -> None:
    total = sum(ended.values()) + left
    counts = ended | ({TaskState.RUNNING: left} if running else {})
    state = derive_job(JobState.RUNNING, total, counts, tolerated, keep_going=True)
    if left:
        assert state is JobState.RUNNING
    else:
        assert state is derive_job(JobState.RUNNING, total, counts, tolerated)
        assert state in JOB_TABLE.terminal


GOES_ON = Budget(0, 0, 0, 0, timeout_count=1, max_retries_timeout=2)


def test_attempt_that_its_time_limit_stopped_is_tried_again_where_the_job_asks_for_that() -> None:
    at_its_limit = stopped(ReasonCode.TIMEOUT)
    again, last = (
        judge(at_its_limit, each) for each in (GOES_ON, replace(GOES_ON, timeout_count=2))
    )
    assert (again.state, again.attempt_state) == (TaskState.PENDING, TaskState.KILLED)
    assert (last.state, last.timed_out) == (TaskState.KILLED, True)
    assert (again.failure_count, again.preemption_count, again.timed_out) == (0, 0, True)
    killed = judge(at_its_limit, NO_RETRY)
    assert (killed.state, killed.timed_out) == (TaskState.KILLED, False)
    assert judge(stopped(ReasonCode.CANCELLED), GOES_ON).state is TaskState.KILLED


def test_gang_is_tried_again_whole_after_its_time_limit_with_tasks_that_had_succeeded() -> None:
    limit = Timeout(timeout_s=1)
    gang = [replace(ended(0), session_reason=limit), stopped(ReasonCode.TIMEOUT)]
    verdicts = judge_gang(gang, [GOES_ON] * 2)
    assert [each.state for each in verdicts] == [TaskState.PENDING] * 2
    assert [each.timed_out for each in verdicts] == [False, True]

    spent = judge_gang(gang, [GOES_ON, replace(GOES_ON, timeout_count=2)])
    assert [each.state for each in spent] == [TaskState.SUCCEEDED, TaskState.KILLED]


def test_task_of_a_gang_that_failed_for_good_at_the_time_limit_ends_the_gang() -> None:
    failed = replace(ended(1), session_reason=Timeout(timeout_s=1))
    verdicts = judge_gang([failed, stopped(ReasonCode.TIMEOUT)], [GOES_ON] * 2)
    assert [each.state for each in verdicts] == [TaskState.FAILED, TaskState.KILLED]
