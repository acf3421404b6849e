"""Work of higher priority displaces work of lower, where a group allows that."""

import math
from typing import Any

import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import select
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import DrivenAgent, task_index
from tests.control.world import BOB, World

from muster.control.group.requests import GroupRequests
from muster.control.job.explanation import explain_job
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec, Level, QuotaSpec, SessionSpec
from muster.core.states import JOB_TABLE, JobState, SessionStatus, TaskState
from muster.store import schema
from muster.store.records import Job
from muster.wire.messages import Start

AT_ONCE = {"minimum_lease": 0}


def job(priority: int, tasks: int = 1, **more: Any) -> JobSpec:
    spec = {"name": f"p{priority}", "command": [f"p{priority}"], "tasks": tasks}
    return JobSpec.model_validate(spec | {"priority": priority, "grace": 0} | more)


def forever(start: Start) -> Run:
    return Run(1000)


def running(world: World) -> list[str]:
    """The names of what runs, sorted, as the agents know it."""
    return sorted(name for agent in world.agents.values() for name in running_on(agent))


def running_on(agent: DrivenAgent) -> list[str]:
    return [kernel.start.template.command[0] for kernel in agent.running.values()]


def charged(world: World, of: Job) -> list[int]:
    """The preemption counts of its tasks, from SQL."""
    tasks = schema.tasks
    query = select(tasks.c.preemption_count).where(tasks.c.job_id == of.id).order_by(tasks.c.idx)
    with world.store.engine.connect() as connection:
        return list(connection.execute(query).scalars())


def codes(world: World, of: Job) -> list[str]:
    """The codes of the reasons with which its tasks went back or ended."""
    history = schema.history
    query = select(history.c.reasons).where(history.c.entity.startswith(f"{of.id}/"))
    with world.store.engine.connect() as connection:
        return [code for text in connection.execute(query).scalars() for code in _codes(text)]


def _codes(text: str | None) -> list[str]:
    return [code.value for code in ReasonCode if f'"{code.value}"' in (text or "")]


def test_victim_stops_is_charged_and_runs_again_when_there_is_room(
    group_world: MakeWorld,
) -> None:
    runs = {"p10": Run(20), "p80": Run(5)}
    world = group_world({"a": 1}, lambda start: runs[start.template.command[0]], preemption=AT_ONCE)
    low = world.submit(job(10))
    world.run(2)
    high = world.submit(job(80))
    assert running(world) == ["p80"]
    assert low.counts[TaskState.PENDING] == 1
    world.run_until(lambda: low.status in JOB_TABLE.terminal)

    assert (high.status, low.status) == (JobState.SUCCEEDED, JobState.SUCCEEDED)
    assert (charged(world, high), charged(world, low)) == ([0], [1])
    assert codes(world, low) == [ReasonCode.PREEMPTED]
    assert not world.plane.live.ledger


def test_no_more_is_displaced_than_is_needed_and_the_cheapest(group_world: MakeWorld) -> None:
    world = group_world({"a": 4}, forever, preemption=AT_ONCE)
    world.submit(job(30, 2))
    world.submit(job(10, 2))
    world.run(1)
    world.submit(job(80))
    world.run(5)
    assert running(world) == ["p10", "p30", "p30", "p80"]


def test_why_of_what_others_leave_for_says_so_and_proposes_nobody_else(
    group_world: MakeWorld,
) -> None:
    stays = Run(1000, stubborn=True, outlives_kill_s=math.inf)
    world = group_world({"a": 1, "b": 1}, lambda start: stays, preemption=AT_ONCE)
    world.submit(job(10, 2, grace=600))
    world.run(1)
    high = world.submit(job(80))
    world.run(1)
    assert running(world) == ["p10", "p10"]
    live, cluster = world.plane.live, world.cluster
    (leaving,) = cluster.groups["default"].displacing.values()
    assert len(leaving) == 1

    answer = explain_job(live, cluster, high.id, world.clock.now())
    (why,) = answer.reasons
    assert (why.code, why.remedy) == (
        "NO_ROOM",
        "Nothing: it starts when those that make room for it have left.",
    )
    assert answer.placement is not None
    assert answer.placement.displaces is None


def test_room_that_victims_make_goes_to_nobody_else_though_absent_agents_might_make_some_earlier(
    group_world: MakeWorld,
) -> None:
    """Otherwise whoever takes it is displaced at once, and the next, until all budgets are
    spent."""

    slow = Run(1000, stubborn=True)

    def run(start: Start) -> Run:
        if start.template.command[0] == "p10" and task_index(start) == 0:
            return slow
        return Run(1000)

    world = group_world(
        {"a": 2, "b": 2}, run, preemption=AT_ONCE, agent_silence=500, queue="best_effort"
    )
    world.submit(job(80, resources={"cpu": 2}, timeout=5))  # where it runs room comes first
    low = world.submit(job(10, 6, grace=600))
    world.run(1)
    absent = next(agent for agent in world.agents.values() if running_on(agent) == ["p80"])
    world.disconnect(absent)
    world.settle()
    high = world.submit(job(50, resources={"cpu": 2}))
    world.run(7)
    for agent in world.agents.values():
        for key, kernel in agent.running.items():
            if kernel.run is slow:
                agent.supervisor.end_process(key)
    world.run(13)
    assert sum(charged(world, low)) <= 2
    assert high.counts[TaskState.RUNNING] == 1


def test_group_without_preemption_displaces_nobody(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, forever)
    world.submit(job(10))
    world.submit(job(80))
    world.run(100)
    assert running(world) == ["p10"]


def test_equal_priority_is_never_displaced(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, forever, preemption=AT_ONCE)
    world.submit(job(50))
    world.submit(job(50, name="other", command=["other"]))
    world.run(100)
    assert running(world) == ["p50"]


def test_victim_of_which_the_budget_is_spent_ends(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, forever, preemption=AT_ONCE)
    low = world.submit(job(10, max_retries_preemption=0))
    world.run(1)
    world.submit(job(80))
    world.run(1)
    assert low.status is JobState.FAILED
    assert low.reason is not None
    assert low.reason.code is ReasonCode.TASK_LOST


def test_mode_terminate_ends_the_victim_for_good(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, forever, preemption=AT_ONCE | {"mode": "terminate"})
    low = world.submit(job(10))
    world.run(1)
    world.submit(job(80))
    world.run(1)
    assert low.status is JobState.KILLED
    assert low.reason is not None
    assert low.reason.sentence() == "ended for work of priority 80"
    assert running(world) == ["p80"]


@pytest.mark.parametrize("mode", ["terminate", "reschedule"])
@pytest.mark.parametrize("later", [False, True])
def test_session_that_nobody_would_begin_anew_is_displaced_only_where_victims_end(
    group_world: MakeWorld, mode: str, later: bool
) -> None:
    preemption = AT_ONCE | {"mode": mode}
    world = group_world({"a": 1}, forever, **({} if later else {"preemption": preemption}))
    spec = {"kernels": [{"command": ["alone"], "grace": 0}], "priority": 10}
    session = world.submit_session(SessionSpec.model_validate(spec))
    world.run(1)
    if later:
        group = type(world.plane.live.groups["default"]).model_validate(
            {"name": "default", "preemption": preemption}
        )
        world.ask(lambda work, parts: parts[GroupRequests].put_group(work, group))
    world.submit(job(80))
    world.run(5)
    ended = session.status is SessionStatus.TERMINATED
    assert ended == (mode == "terminate")
    assert running(world) == (["p80"] if ended else ["alone"])


def test_victim_keeps_its_minimum_lease_and_leaves_the_moment_it_is_over(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 1}, forever, preemption={"minimum_lease": 20})
    world.submit(job(10))
    began = world.clock.now()
    world.run(5)
    world.submit(job(80))
    world.run_until(lambda: running(world) == ["p80"])
    assert 20 <= world.clock.now() - began <= 21


@pytest.mark.parametrize("queue", ["strict", "backfill", "best_effort"])
@pytest.mark.parametrize("restart", [False, True])
def test_nobody_else_is_displaced_while_the_first_victims_leave(
    group_world: MakeWorld, queue: str, restart: bool
) -> None:
    slow = {"p10": Run(1000, stubborn=True, outlives_kill_s=math.inf), "p20": Run(1000)}
    world = group_world(
        {"a": 1, "b": 1},
        lambda start: slow.get(start.template.command[0], Run(1000)),
        preemption=AT_ONCE,
        queue=queue,
    )
    world.submit(job(10, grace=30))
    world.submit(job(20))
    world.run(1)
    world.submit(job(80))
    for _ in range(10):
        world.run(1)
        if restart:
            world.restart_controller()
        assert running(world) == ["p10", "p20"], "it takes its time to leave"
    victims = [each for each in world.agents.values() if each.running]
    (key,) = next(
        list(agent.running)
        for agent in victims
        if next(iter(agent.running.values())).start.template.command == ("p10",)
    )
    agent = next(agent for agent in victims if key in agent.running)
    agent.supervisor.end_process(key, None)
    world.run(2)
    assert running(world) == ["p20", "p80"]


@pytest.mark.parametrize("queue", ["strict", "backfill", "best_effort"])
def test_gang_gets_the_room_of_its_victims_though_they_leave_one_after_the_other(
    group_world: MakeWorld, queue: str
) -> None:
    """The room of the first victim must not go to others, who would have to be displaced next."""
    world = group_world(
        {"a": 1, "b": 1},
        lambda start: Run(
            1000,
            stubborn=start.template.command[0] == "p10" and task_index(start) == 1,
            outlives_kill_s=math.inf,
        ),
        preemption=AT_ONCE | {"least_difference": 30},
        queue=queue,
    )
    low = world.submit(job(10, 2, grace=30))
    world.run(1)
    world.submit(job(20, 5))
    world.submit(job(80, 2, coscheduled=True))
    world.run(5)
    assert running(world) == ["p10"], "what has become free is kept"
    (agent,) = [agent for agent in world.agents.values() if agent.running]
    (key,) = agent.running
    agent.supervisor.end_process(key, None)
    world.run(2)
    assert running(world) == ["p80", "p80"]
    assert charged(world, low) == [1, 1]


def test_gang_is_displaced_whole_and_requeued_whole(group_world: MakeWorld) -> None:
    runs = {"p10": Run(20), "p80": Run(5)}
    world = group_world(
        {"a": 1, "b": 1}, lambda start: runs[start.template.command[0]], preemption=AT_ONCE
    )
    low = world.submit(job(10, 2, coscheduled=True))
    world.run(1)
    world.submit(job(80))
    world.run(1)
    assert running(world) == ["p80"]
    world.run_until(lambda: low.status in JOB_TABLE.terminal)
    assert low.status is JobState.SUCCEEDED
    assert charged(world, low) == [1, 1]


def test_gang_that_would_not_fit_displaces_nobody(group_world: MakeWorld) -> None:
    world = group_world({"a": 2}, forever, preemption=AT_ONCE)
    world.submit(job(10))
    world.submit(job(90))
    world.run(1)
    world.submit(job(80, 2, coscheduled=True))
    world.run(100)
    assert running(world) == ["p10", "p90"]


def test_gang_of_which_a_kernel_has_ended_counts_with_what_it_holds_still(
    group_world: MakeWorld,
) -> None:
    """Its other kernel's room was given away long ago: to displace it would not help."""
    world = group_world(
        {"a": 2},
        lambda start: Run(
            1 if start.template.command[0] == "p10" and task_index(start) == 0 else 1000
        ),
        preemption=AT_ONCE,
    )
    world.submit(job(10, 2, coscheduled=True))
    world.run(2)
    world.submit(job(90))
    world.run(1)
    world.submit(job(80, resources={"cpu": 2}))
    world.run(100)
    assert running(world) == ["p10", "p90"]


def test_victim_that_does_not_run_yet_goes_back_to_the_queue_uncharged(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 1}, forever, preemption=AT_ONCE)
    world.agent("a").prepare_failures = [ReasonCode.NO_PORTS]  # it is tried again, by and by
    low = world.submit(job(10, ports=1))
    session = world.only_session()
    statuses = [session.status]
    world.submit(job(80))
    world.run(0.5)
    assert running(world) == ["p80"]
    assert [*statuses, session.status] == [SessionStatus.PREPARING, SessionStatus.PENDING]
    assert charged(world, low) == [0]


def test_displaced_before_it_runs_waits_anew(group_world: MakeWorld) -> None:
    lengths = {"first": 8, "high": 5, "low": 1}

    def behaviour(start: Start) -> Run:
        name = start.template.command[0]
        return Run(lengths[name], creating_s=30 if name == "low" else 0)

    world = group_world({"a": 1}, behaviour, preemption={"minimum_lease": 0})
    world.submit(JobSpec(command=["first"], priority=90))
    low = world.submit(JobSpec(command=["low"], priority=10, scheduling_timeout=10))
    world.run(9)
    task = low.tasks[0]
    statuses = [task.status]
    world.submit(JobSpec(command=["high"], priority=90))
    world.run(4)
    statuses.append(task.status)  # it has waited for 12 s in all, and for 4 now
    world.run(3)
    statuses.append(task.status)
    placed, waits = TaskState.ASSIGNED, TaskState.PENDING
    assert statuses == [placed, waits, placed]
    assert low.status in JOB_TABLE.live
    assert task.preemption_count == 0


def test_room_that_is_promised_to_the_head_is_taken_from_nobody_for_others(
    group_world: MakeWorld,
) -> None:
    """A session that may not wait for promised room would displace each session that takes it."""
    runs = {"short": Run(3), "p90": Run(100)}
    world = group_world({"a": 4}, lambda start: runs[start.template.command[0]], preemption=AT_ONCE)
    world.submit(job(90, timeout=100))
    world.submit(job(90, name="head", resources={"cpu": 4}))
    world.submit(job(90, name="long", resources={"cpu": 2}))
    brief = job(50, name="short", command=["short"], timeout=3, resources={"cpu": 3})
    low = world.submit(brief)
    assert running(world) == ["p90", "short"]
    world.run(4)
    assert low.status is JobState.SUCCEEDED
    assert charged(world, low) == [0]


@pytest.mark.parametrize("queue", ["backfill", "best_effort"])
def test_session_for_which_others_leave_keeps_its_place_in_its_owners_quota(
    group_world: MakeWorld, queue: str
) -> None:
    """Its own user's work of lower priority took that place, was displaced by a third session, gave
    the place back and took it again, without an end."""
    runs = {"p10": Run(1000, stubborn=True, outlives_kill_s=math.inf)}
    world = group_world(
        {"a": 4, "b": 4},
        lambda start: runs.get(start.template.command[0], Run(1000)),
        preemption=AT_ONCE,
        queue=queue,
    )
    quota = QuotaSpec(level=Level.USER, name="default/default/ada", sessions=1)
    world.ask(lambda work, parts: parts[GroupRequests].put_quota(work, quota))
    world.submit(job(10, grace=600, resources={"cpu": 4}), BOB)
    world.run(1)
    head = world.submit(job(90, 5, coscheduled=True))
    assert head.status is JobState.PENDING
    low = world.submit(job(50, 2, coscheduled=True))
    other = world.submit(job(90, resources={"cpu": 4}, name="other"), BOB)
    world.run(5)
    assert running(world) == ["p10"]
    assert {each.status for each in (head, low, other)} == {JobState.PENDING}
