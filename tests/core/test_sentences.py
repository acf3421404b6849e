"""The sentences with which answers begin."""

from dataclasses import replace
from typing import Any

import pytest

from muster.core import sentences
from muster.core.reasons import Reason
from muster.core.reasons.of_kernels import Signaled
from muster.core.reasons.of_sessions import AgentIsUnreachable
from muster.core.states import KernelStatus, TaskState
from muster.core.views.base import OwnerView, ReasonView
from muster.core.views.placement import HolderView
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
    assert sentences.runs("train", 65.0, names) == f"train has run for 1m05s{where}"
    if names:
        told = sentences.runs("train", None, names, only_first=True)
        assert told == f"train runs{where} (its first tasks)"
        again = sentences.runs("train/1", 65.0, names, attempt=2)
        assert again == f"train/1 has run for 1m05s{where} in attempt 2"


def test_ended_work_tells_when_after_how_long_and_its_tasks_if_there_are_several() -> None:
    assert sentences.ended("it", 12.0, None) == "it ended 12s ago without a start"
    counts = {TaskState.FAILED: 1, TaskState.SUCCEEDED: 2000, TaskState.KILLED: 0}
    assert sentences.ended("prep", 3600.0, 60.0, counts) == (
        "prep ended 1h00m ago after 1m00s: 2,000 succeeded, 1 failed"
    )


def test_tasks_are_counted_by_what_they_do() -> None:
    assert sentences.tasks({TaskState.PENDING: 1}) == "1 task: 1 waiting"
    counts = {
        TaskState.BUILDING: 1,
        TaskState.ASSIGNED: 2,
        TaskState.KILLED: 3,
        TaskState.RUNNING: 4,
    }
    assert sentences.tasks(counts) == "10 tasks: 4 running, 3 being started, 3 ended otherwise"


def test_failed_task_tells_agent_attempt_signal_and_reason_as_far_as_they_are_known() -> None:
    killed = Signaled(signal=9)
    assert sentences.failed(task()) == "task 1 failed"
    assert sentences.failed(task(attempt(1, exit_code=3))) == "task 1 failed: exited with code 3"
    assert (
        sentences.failed(task(attempt(1, agent="a"), attempt(2, agent="b", signal=9), why=killed))
        == f"task 1 failed on b in attempt 2 (SIGKILL): {killed.sentence()}"
    )


def test_task_tells_where_its_last_attempt_ran_if_that_is_known() -> None:
    assert [*sentences.ran(task())] == [*sentences.ran(task(attempt(1)))] == []
    last = attempt(2, agent="b", signal=9)
    assert [*sentences.ran(task(attempt(1, agent="a"), last))] == [
        "task 1 ran on b in attempt 2 (SIGKILL)"
    ]


def test_place_in_the_queue_tells_how_many_kernels_would_find_room() -> None:
    start = "Place 1 of 5 in the queue of group default"
    assert sentences.queue_place("default", 1, 5, 4, 4) == f"{start}."
    assert (
        sentences.queue_place("default", 1, 5, 4, 1) == f"{start}; 1 of 4 kernels would find room."
    )
    assert sentences.queue_place("default", 2, 5, 4, 1) == (
        "Place 2 of 5 in the queue of group default; once those ahead have started, 1 of 4 kernels "
        "would find room."
    )


def test_reserved_room_is_told_with_the_time_of_the_start_or_else_with_its_agents() -> None:
    by_timeout = "enough running work has reached its timeout."
    assert sentences.reserved(40, ["a1"]) == f"It starts in 40s at the latest: by then {by_timeout}"
    assert sentences.reserved(-1, ["a1"]) == f"It starts any moment: {by_timeout}"
    agents = [f"a{number}" for number in (1, 1, 2, 3, 4, 5, 6)]
    assert sentences.reserved(None, agents) == (
        "Room that becomes free on a1, a2, a3, a4, a5 and 1 more is kept for it."
    )


def test_agents_looked_at_tell_how_many_kernels_fit_by_themselves() -> None:
    assert sentences.agents_looked_at(1003, 1, "9 gpu", 0) == (
        "1,003 agents looked at for 1 kernel asking for 9 gpu"
    )
    assert sentences.agents_looked_at(3, 2, "2 gpu", 1) == (
        "3 agents looked at for 2 kernels asking for 2 gpu each: by themselves 1 of 2 would find "
        "room"
    )


def test_holders_of_a_resource_are_named_or_counted() -> None:
    owner = OwnerView(domain="default", project="default", user="ann")
    train = HolderView(name="train", amount="6", sessions=1, yours=True, owner=owner, since=0.0)
    sweep = HolderView(name="sweep", amount="1", sessions=2, owner=owner, since=0.0)
    others, on = HolderView(amount="1", sessions=2), sentences.on_agents(["node-1"])
    assert sentences.in_use("gpu", "8", "8", on, (train, sweep, others), 7200) == (
        "8 of 8 gpu on node-1 held by train (yours, 6, for 2h00m), "
        "sweep (ann, 2 sessions, 1, for 2h00m), 2 sessions of others (1)"
    )
    quota = "of user default/default/ann"
    assert sentences.in_use("cpu", "2", "2", quota, (), 7200) == f"2 of 2 cpu {quota} in use"
    assert sentences.in_use("sessions", "3", "3", quota, (train, sweep), 7200) == (
        f"3 of 3 sessions {quota} held by train (yours, for 2h00m), "
        "sweep (ann, 2 sessions, for 2h00m)"
    )
    alone = HolderView(sessions=1)
    assert sentences.ahead(alone, 7200) == "ahead of it is a session of others"


def test_silent_agent_is_told_with_the_end_of_its_lease() -> None:
    silent = AgentIsUnreachable(agent="a", silent_s=4)
    ends = [replace(silent, ends_in_s=9), replace(silent, endless=True)]
    assert [each.sentence().partition("running ")[2] for each in ends] == [
        "until their lease ends, in 9 s",
        "until it is heard again, or seen gone: beside the controller a lease has no end",
    ]
