"""The sentences with which answers begin."""

from typing import Any

import pytest
from msgspec.structs import replace

from muster.core import verdicts
from muster.core.reasons import Reason, ReasonCode, reason
from muster.core.states import KernelStatus, TaskState
from muster.core.views.base import ReasonView
from muster.core.views.placement import WhyView
from muster.core.views.work import KernelView, TaskDetail


def attempt(number: int, **fields: Any) -> KernelView:
    return KernelView(
        id="krn-1",
        session_id="ses-1",
        index=0,
        attempt=number,
        status=KernelStatus.TERMINATED,
        status_changed_at=0.0,
        **fields,
    )


def task(*attempts: KernelView, why: Reason | None = None) -> TaskDetail:
    return TaskDetail(
        job_id="job-1",
        index=1,
        state=TaskState.FAILED,
        state_changed_at=0.0,
        reason=None if why is None else ReasonView.of(why),
        attempts=attempts,
    )


@pytest.mark.parametrize(
    ("names", "where"),
    [
        ([], ""),
        (["a"], " on a"),
        (["a", "a", "b"], " on a and b"),
        (["a", "b", "c"], " on a, b and c"),
        (["a", "b", "c", "d", "e"], " on a, b, c and 2 more"),
    ],
)
def test_running_work_names_a_few_of_its_agents(names: list[str], where: str) -> None:
    assert verdicts.runs("train", 65.0, names) == f"train has run for 1m05s{where}"
    if names:
        told = verdicts.runs("train", None, names, only_first=True)
        assert told == f"train runs{where} (its first tasks)"


def test_ended_work_tells_when_after_how_long_and_its_tasks_if_there_are_several() -> None:
    assert verdicts.ended("it", 12.0, None) == "it ended 12s ago without a start"
    counts = {TaskState.FAILED: 1, TaskState.SUCCEEDED: 2000, TaskState.KILLED: 0}
    assert verdicts.ended("prep", 3600.0, 60.0, counts) == (
        "prep ended 1h00m ago after 1m00s: 2,000 succeeded, 1 failed"
    )


def test_tasks_are_counted_by_what_they_do() -> None:
    assert verdicts.tasks({TaskState.PENDING: 1}) == "1 task: 1 waiting"
    counts = {
        TaskState.BUILDING: 1,
        TaskState.ASSIGNED: 2,
        TaskState.KILLED: 3,
        TaskState.RUNNING: 4,
    }
    assert verdicts.tasks(counts) == "10 tasks: 4 running, 3 being started, 3 ended otherwise"


def test_failed_task_tells_agent_attempt_signal_and_reason_as_far_as_they_are_known() -> None:
    killed = reason(ReasonCode.SIGNALED, signal=9)
    assert verdicts.failed(task()) == "task 1 failed"
    assert verdicts.failed(task(attempt(1, exit_code=3))) == "task 1 failed: exited with code 3"
    assert (
        verdicts.failed(task(attempt(1, agent="a"), attempt(2, agent="b", signal=9), why=killed))
        == f"task 1 failed on b in attempt 2 (SIGKILL): {killed.sentence()}"
    )


def test_task_that_runs_is_told_by_its_present_attempt() -> None:
    work = WhyView(subject="ses-1", status="RUNNING", verdict="running for 2h")
    first, second = attempt(1, started_at=0.0), attempt(2, started_at=100.0, agent="a")
    running = replace(task(first, second), state=TaskState.RUNNING, started_at=0.0)
    answer = verdicts.of_task(work, "long/1", running, 105.0)
    assert (answer.verdict, answer.output) == (
        "long/1 has run for 5s on a in attempt 2",
        "long/1",
    )


def test_task_that_has_ended_is_told_by_itself_though_its_job_runs() -> None:
    work = WhyView(subject="job-1", status="RUNNING", verdict="2 tasks: 1 running")
    failed = replace(task(attempt(2, started_at=90.0, exit_code=3)), finished_at=100.0)
    answer = verdicts.of_task(work, "long/1", failed, 105.0)
    assert answer.ended
    assert answer.verdict == "long/1 ended 5s ago after 10s"
    assert answer.details == ("task 1 failed in attempt 2: exited with code 3",)


def test_task_that_waits_is_told_as_its_work_is() -> None:
    work = WhyView(subject="job-1", status="PENDING", verdict="1 task: 1 waiting")
    waiting = replace(task(), state=TaskState.PENDING)
    assert verdicts.of_task(work, "long/1", waiting, 105.0) is work
