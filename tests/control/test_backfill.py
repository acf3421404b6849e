"""Room that is kept for the first session that lacks it, on the live control plane."""

from typing import Any

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import task_index
from tests.control.world import World, state

from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec
from muster.core.states import JobState


def job(name: str, tasks: int = 1, **more: Any) -> JobSpec:
    spec = {"name": name, "command": [name], "tasks": tasks}
    return JobSpec.model_validate(spec | more)


def whole(world: World) -> dict[str, float]:
    """When each job that runs has started, after the world began to wait."""
    return {
        job.name: job.started_at
        for job in world.plane.live.jobs.values()
        if job.started_at is not None
    }


@pytest.mark.parametrize("restart", [False, True])
def test_head_with_known_ends_starts_no_later_for_what_overtakes_it(
    group_world: MakeWorld, restart: bool
) -> None:
    lengths = {"first": 30, "short": 20, "long": 60, "head": 5}
    world = group_world({"a": 2}, lambda start: Run(lengths[start.template.command[0]]))
    began = world.clock.now()
    world.submit(job("first", timeout=30))
    head = world.submit(job("head", 2, coscheduled=True, timeout=10))
    world.submit(job("long", timeout=60))
    world.submit(job("short", timeout=20))
    world.run(1)
    assert set(whole(world)) == {"first", "short"}, "what ends in time may start before"
    (members,) = (
        each
        for each in world.cluster.groups["default"].queue.classes
        if each.workload.duration_s == 60
    )
    assert [why.code for why in members.reasons] == [ReasonCode.BEHIND_RESERVATION]
    if restart:
        world.restart_controller()
        head = world.plane.live.jobs[head.id]
    world.run_until(lambda: head.status is JobState.RUNNING)
    assert world.clock.now() - began <= 31


def test_gang_starts_under_a_stream_of_small_work_of_unknown_length(
    group_world: MakeWorld,
) -> None:
    world = group_world(
        {"a": 4, "b": 4},
        lambda start: Run(
            5 if start.template.command[0] == "gang" else 2 + task_index(start) % 7 * 0.5
        ),
        starvation_after=30,
    )
    world.submit(job("small", 1000))
    gang = world.submit(job("gang", 8, coscheduled=True))
    began = world.clock.now()
    world.run(25)
    assert state(gang) is JobState.PENDING, "small work overtakes it for a while"
    world.run_until(lambda: state(gang) is JobState.RUNNING)
    assert world.clock.now() - began <= 30 + 5 + 1
    world.run(8)
    assert state(gang) is JobState.SUCCEEDED
    assert sum(len(agent.running) for agent in world.agents.values()) == 8, "the stream goes on"


def test_gang_that_starves_keeps_its_room_over_restarts_of_the_controller(
    group_world: MakeWorld,
) -> None:
    world = group_world(
        {"a": 2, "b": 2},
        lambda start: Run(5 if start.template.command[0] == "gang" else 3),
        starvation_after=10,
    )
    world.submit(job("small", 1000))
    id_ = world.submit(job("gang", 4, coscheduled=True)).id
    began = world.clock.now()
    while world.plane.live.jobs[id_].status is JobState.PENDING:
        world.run(2)
        world.restart_controller()
        assert world.clock.now() - began <= 10 + 2 * 3 + 2


@pytest.mark.parametrize("restart", [False, True])
def test_head_is_not_put_off_again_and_again_by_what_takes_long_to_start(
    group_world: MakeWorld, restart: bool
) -> None:
    """A limit runs from the start: each that overtakes would end later than it was taken to, and
    have the next one overtake."""
    runs, slow = {"first": Run(75), "head": Run(5), "short": Run(1)}, Run(60, creating_s=29)
    world = group_world({"a": 8}, lambda start: runs.get(start.template.command[0], slow))
    began = world.clock.now()
    world.submit(job("first", timeout=75))
    head = world.submit(job("head", 8, coscheduled=True, timeout=10))
    for limit_s in range(60, 40, -2):
        world.submit(job(f"slow-{limit_s}", timeout=limit_s))
        world.submit(job("short", timeout=2))
        world.run(30)
        if restart:
            world.restart_controller()
            head = world.plane.live.jobs[head.id]
        if state(head) is not JobState.PENDING:
            break
    assert world.clock.now() - began <= 30 + 60 + 31, "the first could not be foreseen"
