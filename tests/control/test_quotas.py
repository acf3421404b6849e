"""Quotas: what people may hold together, in one pass, over time and over restarts."""

import math
from collections import Counter

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld, cpus
from tests.control.driven_agent import kernel_index
from tests.control.world import ADA, BOB, World, state
from tests.databases import ON_BOTH

from muster.control.group.requests import GroupRequests
from muster.control.job.requests import JobRequests
from muster.control.session.requests import SessionRequests
from muster.core.errors import Conflict
from muster.core.owner import Owner, Principal, Role
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec, Level, QuotaSpec, ScalingGroup, SessionSpec
from muster.core.states import JOB_TABLE, SESSION_TABLE, JobState, SessionStatus, TaskState

pytestmark = ON_BOTH

CAT = Principal(Owner("default", "lab", "cat"), Role.USER)
PEOPLE = (ADA, BOB, CAT)


def put(world: World, level: Level, name: str, **limits: object) -> None:
    spec = QuotaSpec.model_validate({"level": level, "name": name, **limits})
    world.ask(lambda work, parts: parts[GroupRequests].put_quota(work, spec))


def job(tasks: int = 1, **more: object) -> JobSpec:
    return JobSpec.model_validate({"command": ["x"], "tasks": tasks, **more})


def running(world: World) -> Counter[str]:
    """Kernels that run, by user, as the agents know it."""
    sessions = world.plane.live.sessions
    return Counter(
        sessions[kernel.session.id].owner.user
        for agent in world.agents.values()
        for kernel_id, _ in agent.running
        if (kernel := world.plane.live.kernels.get(kernel_id)) is not None
    )


def why(world: World, user: str) -> set[ReasonCode]:
    """Why sessions of the user wait."""
    return {
        each.code
        for waiting in world.cluster.groups["default"].queue.classes
        if waiting.workload.owner.user == user
        for each in waiting.reasons
    }


def test_limit_of_a_user_holds_in_one_pass_and_for_nobody_else(group_world: MakeWorld) -> None:
    world = group_world({"a": 16}, lambda start: Run(50))
    put(world, Level.USER, "default/default/ada", limits={"cpu": 3})
    world.submit(job(8))
    world.submit(job(8), BOB)
    assert running(world) == {"ada": 3, "bob": 8}
    assert why(world, "ada") == {ReasonCode.QUOTA_IN_USE}


def test_limits_of_all_three_levels_hold_together(group_world: MakeWorld) -> None:
    world = group_world({"a": 32}, lambda start: Run(50))
    put(world, Level.USER, "default/default/*", sessions=4)
    put(world, Level.PROJECT, "default/default", limits={"cpu": 6})
    put(world, Level.DOMAIN, "default", sessions=9)
    for person in PEOPLE:
        world.submit(job(8), person)
    assert running(world) == {"ada": 4, "bob": 2, "cat": 3}


def test_limits_hold_under_a_stream_of_work_and_restarts_of_the_controller(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 8, "b": 8}, lambda start: Run(0.7))
    put(world, Level.USER, "default/default/ada", limits={"cpu": 2})
    put(world, Level.PROJECT, "default/default", sessions=5)
    put(world, Level.DOMAIN, "default", limits={"cpu": 7})
    jobs = [world.submit(job(12), person).id for person in PEOPLE for _ in range(2)]
    most: Counter[str] = Counter()
    for moment in range(120):
        if moment % 8 == 7:
            world.restart_controller()
        world.run(0.3, 0.3)
        now = running(world)
        assert now["ada"] <= 2
        assert now["ada"] + now["bob"] <= 5
        assert now.total() <= 7
        most |= now
        if not world.plane.live.jobs:
            break
    assert not [id_ for id_ in jobs if id_ in world.plane.live.jobs], "all of it ran"
    assert most["ada"] == 2, "and no limit is tighter than it says"
    usage = world.cluster.accounting.usage.of((Level.DOMAIN, "default"))
    assert (usage.amounts, usage.sessions, usage.pending) == ({}, 0, 0)


def test_raised_quota_lets_work_start_at_once(group_world: MakeWorld) -> None:
    world = group_world({"a": 8}, lambda start: Run(50))
    put(world, Level.USER, "default/default/ada", sessions=1)
    world.submit(job(3))
    assert running(world) == {"ada": 1}
    put(world, Level.USER, "default/default/ada", sessions=2)
    assert running(world) == {"ada": 2}
    world.ask(
        lambda work, parts: parts[GroupRequests].remove_quota(
            work, Level.USER, "default/default/ada"
        )
    )
    assert running(world) == {"ada": 3}


@pytest.mark.parametrize("restarted", [False, True])
def test_end_in_one_group_lets_work_start_that_waits_for_the_quota_in_another(
    group_world: MakeWorld, restarted: bool
) -> None:
    world = group_world({"a": 8}, lambda start: Run(5))
    world.ask(lambda work, parts: parts[GroupRequests].put_group(work, ScalingGroup(name="second")))
    world.add_agent("b", cpus(8), group="second")
    put(world, Level.DOMAIN, "default", sessions=1)
    world.submit(job(group="second"), BOB)
    waits = world.submit(job())
    assert (running(world), why(world, "ada")) == ({"bob": 1}, {ReasonCode.QUOTA_IN_USE})
    if restarted:
        world.restart_controller()
    world.run(5.5)
    assert world.plane.live.jobs[waits.id].status is JobState.RUNNING


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"limits": {"cpu": 2}}, "cpu: requested 4 > limit 2, over by 2 (quota of user"),
        ({"largest": {"cpu": 3}}, "cpu: requested 4 > limit 3 of one session, over by 1"),
        ({"pending_sessions": 0}, "sessions waiting: 0 + requested 1 > limit 0, over by 1"),
    ],
)
def test_work_beyond_a_quota_itself_is_refused_and_nothing_is_written(
    group_world: MakeWorld, limits: dict[str, object], sentence: str
) -> None:
    world = group_world({"a": 8})
    put(world, Level.USER, "default/default/ada", **limits)
    with pytest.raises(Conflict) as caught:
        world.submit(job(4, coscheduled=True))
    assert sentence in str(caught.value)
    assert not world.plane.live.jobs
    world.restart_controller()
    assert not world.plane.live.jobs


def test_advice_about_two_quotas_is_given_once(group_world: MakeWorld) -> None:
    world = group_world({"a": 8})
    put(world, Level.USER, "default/default/ada", limits={"cpu": 2}, largest={"cpu": 3})
    with pytest.raises(Conflict) as caught:
        world.submit(job(4, coscheduled=True))
    assert str(caught.value).count("over by") == 2
    assert str(caught.value).count("Ask for less, or ask an operator for a larger quota") == 1


def test_tasks_of_a_job_that_are_not_in_the_queue_yet_count_as_waiting(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 1}, lambda start: Run(1))
    put(world, Level.USER, "default/default/ada", pending_sessions=10)
    first = world.submit(job(8))  # one of them starts, so that seven wait
    for restarted in (False, True):
        if restarted:
            world.restart_controller()
        with pytest.raises(Conflict, match=r"7 \+ requested 4 > limit 10, over by 1"):
            world.submit(job(4))
    second = world.submit(job(3))
    world.run_until(lambda: first.id not in world.plane.live.jobs)
    world.run_until(lambda: second.id not in world.plane.live.jobs)
    assert world.cluster.accounting.usage.of((Level.USER, "default/default/ada")).pending == 0


def test_cancelled_job_waits_no_more(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, lambda start: Run(50))
    put(world, Level.USER, "default/default/ada", pending_sessions=10)
    long = world.submit(job(10))
    world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, long.id))
    world.run(1)
    assert world.submit(job(10)).status is JobState.RUNNING


def test_lowered_quota_ends_what_can_never_start(group_world: MakeWorld) -> None:
    world = group_world({"a": 4}, lambda start: Run(50))
    world.submit(job(4), BOB)
    large = world.submit(job(5, resources={"cpu": 3}))
    small = world.submit(job(2))
    assert state(large) is JobState.PENDING
    put(world, Level.USER, "default/default/ada", limits={"cpu": 2})

    assert state(large) is JobState.UNSCHEDULABLE
    assert large.counts[TaskState.UNSCHEDULABLE] >= 1
    assert not large.counts.get(TaskState.PENDING)
    assert large.reason is not None
    assert large.reason.sentence().startswith("cpu: requested 3 > limit 2, over by 1")
    assert small.status in JOB_TABLE.live
    waiting = [s for s in world.plane.live.sessions.values() if s.status is SessionStatus.PENDING]
    assert {session.job for session in waiting} == {small}


def test_session_given_up_after_too_many_placements_waits_no_more(group_world: MakeWorld) -> None:
    world = group_world(
        {"a": 2},
        lambda start: Run(create_failure=ReasonCode.DISK_FULL),
        max_tries=1,
        max_reschedules=1,
    )
    failing = world.submit(job())
    world.run_until(lambda: failing.status in JOB_TABLE.terminal)
    assert failing.status is JobState.FAILED
    assert world.cluster.accounting.usage.of((Level.USER, "default/default/ada")).pending == 0
    assert not world.cluster.candidates


@pytest.mark.parametrize("kernels", [1, 2])
def test_ended_session_counts_until_its_processes_are_gone_whoever_is_in_charge(
    group_world: MakeWorld, kernels: int
) -> None:
    world = group_world(
        {"a": 8},
        lambda start: Run(1e9, stubborn=kernel_index(start) == 0, outlives_kill_s=math.inf),
        terminate_timeout=5,
    )
    put(world, Level.USER, "default/default/ada", sessions=1)
    replicated = {"command": ["x"], "replicas": kernels}
    stubborn = world.submit_session(SessionSpec.model_validate({"kernels": [replicated]}))
    world.ask(lambda work, parts: parts[SessionRequests].cancel(work, ADA, stubborn.id))
    world.run_until(lambda: stubborn.status in SESSION_TABLE.terminal)
    waiting = world.submit(job())
    for _ in range(2):
        assert len(world.plane.live.ledger) == 1, "its agent has not said that it is gone"
        usage = world.cluster.accounting.usage.of((Level.USER, "default/default/ada"))
        assert (usage.sessions, usage.amounts["cpu"]) == (1, 1000 * kernels)
        assert why(world, "ada") == {ReasonCode.QUOTA_IN_USE}
        world.restart_controller()
        world.run(2)
    agent = world.agent("a")
    for key in agent.running:
        agent.supervisor.end_process(key, None)
    world.run(2)
    assert world.plane.live.jobs[waiting.id].status is JobState.RUNNING
    assert not world.plane.live.left
