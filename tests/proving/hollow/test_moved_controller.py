"""A controller that starts on another machine: agents confirm how much time has passed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from proving.hollow.agent_twin import Offer
from proving.hollow.supervisor import Run
from proving.hollow.world import World

from muster.control.agent.confirming import AWAITED_S
from muster.control.group.requests import GroupRequests
from muster.control.job.requests import JobRequests
from muster.core.ids import AgentId, JobId
from muster.core.owner import Owner, Principal, Role
from muster.core.resources import Resources
from muster.core.specs import JobSpec, ScalingGroup
from muster.core.states import AgentStatus, JobState
from muster.store.database import open_engine, sqlite_url

OFFER = Offer(Resources(cpu_milli=1000, memory_bytes=2**30))
ADA = Principal(Owner("default", "default", "ada"), Role.USER)
HOUR_S = 3600.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    url = sqlite_url(tmp_path / "muster.db")
    world = World(tmp_path, lambda: open_engine(url), lambda start: Run(1e9))
    world.begin({"a": OFFER, "b": OFFER})
    group = ScalingGroup.model_validate({"name": "default", "kernel_lease": "1d"})
    world.request(lambda work, parts: parts[GroupRequests].put_group(work, group))
    world.run(1.0)
    yield world
    world.close()


def submit(world: World, **fields: object) -> JobId:
    spec = JobSpec.model_validate({"command": ["x"], **fields})
    job = world.request(lambda work, parts: parts[JobRequests].submit(work, ADA, spec))
    world.run(1.0)
    return JobId(job.id)


def move(world: World, day_ahead_s: float, away_s: float, meanwhile: Callable[[], None]) -> None:
    """The controller dies; one on another machine, whose time of day is ahead, starts later."""
    world.kill_controller()
    world.run(away_s)
    meanwhile()
    world.move_controller()
    world.time_of_day_ahead_s = day_ahead_s
    world.start_controller()
    world.run(AWAITED_S + 30.0)


def nothing() -> None:
    pass


def ahead_s(world: World) -> float:
    """By how much the controller's time is ahead of the time that has passed."""
    assert world.controller is not None
    return world.controller.time_ahead_s


def statuses(world: World) -> dict[AgentId, tuple[AgentStatus, float]]:
    """The status of each agent, and since when it has it."""
    agents = world.store.live.agents.values()
    return {each.id: (each.status, each.status_changed_at) for each in agents}


def state(world: World, id_: JobId) -> JobState | None:
    """The state of a job that has not ended."""
    job = world.store.live.jobs.get(id_)
    return None if job is None else job.status


@pytest.mark.parametrize("day_ahead_s", [2 * HOUR_S, -HOUR_S])
def test_wrong_clock_of_the_new_machine_ends_nothing(world: World, day_ahead_s: float) -> None:
    running = submit(world, timeout=900)
    submit(world)
    waiting = submit(world, scheduling_timeout=1800)
    move(world, day_ahead_s, 20.0, nothing)
    assert ahead_s(world) == pytest.approx(0.0, abs=2.0)
    assert state(world, running) is JobState.RUNNING
    assert state(world, waiting) is JobState.PENDING
    world.run(900.0)
    assert state(world, running) is None, "its own time is over"
    assert state(world, waiting) is not None, "there is room now"


def test_downtime_counts(world: World) -> None:
    running = submit(world, timeout=900)
    submit(world)
    waiting = submit(world, scheduling_timeout=1800)
    before = statuses(world)
    move(world, 0.0, HOUR_S, nothing)
    assert ahead_s(world) == 0.0
    assert statuses(world) == before, "no agent was silent only because time went ahead"
    assert state(world, running) is None
    assert state(world, waiting) is None


def test_downtime_counts_by_the_agents_clocks_where_that_of_the_new_machine_is_wrong(
    world: World,
) -> None:
    running = submit(world, timeout=2 * HOUR_S)
    move(world, 3 * HOUR_S, HOUR_S, nothing)
    assert ahead_s(world) == pytest.approx(0.0, abs=2.0)
    assert state(world, running) is JobState.RUNNING
    world.run(HOUR_S)
    assert state(world, running) is None


@pytest.mark.parametrize(("day_ahead_s", "believed"), [(0.0, True), (2 * HOUR_S, False)])
def test_time_of_day_is_believed_where_machines_that_have_booted_agree(
    world: World, day_ahead_s: float, believed: bool
) -> None:
    submit(world)
    submit(world)
    waiting = submit(world, resources={"cpu": 4}, scheduling_timeout=1800)

    def boot_all() -> None:
        for agent in world.agents.values():
            agent.reboot(takes_s=1.0)

    move(world, day_ahead_s, HOUR_S, boot_all)
    assert world.controller is not None
    assert world.controller.is_time_confirmed == believed
    assert (state(world, waiting) is None) == believed
    assert ahead_s(world) == pytest.approx(0.0 if believed else -HOUR_S, abs=120.0)
