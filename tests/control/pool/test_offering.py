"""No machine is made because what could go elsewhere took machines that other work needs."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from proving.hollow.supervisor import Run
from tests.control.pool_scenarios import job, pool
from tests.control.world import World

from muster.core.specs import JobSpec
from muster.core.states import JobState
from muster.store.records import Job

IN_X = {"constraints": [{"attribute": "zone", "op": "EQ", "values": ["x"]}]}


def two_pools(path: Path, names: Sequence[str]) -> World:
    """A world with a pool in zone x and a cheaper one in zone y, applied in this order."""
    world = World(path, {})
    specs = {
        "h100": pool("h100", attributes={"zone": "x"}, max_slices=50, price=2),
        "a100": pool("a100", attributes={"zone": "y"}, max_slices=50, price=1),
    }
    for name in names:
        world.apply(specs[name])
    world.behaviour = lambda start: Run(300.0)
    world.run(1)
    return world


def only_x(name: str) -> JobSpec:
    return job(name, placement=IN_X)


def submit(world: World, count: int, pause_s: float) -> list[Job]:
    """So many jobs that may go anywhere, then as many that need zone x."""
    flexible = [world.submit(job(f"any-{number}")) for number in range(count)]
    world.run(pause_s)
    return [*flexible, *(world.submit(only_x(f"x-{number}")) for number in range(count))]


@pytest.mark.parametrize("names", [("h100", "a100"), ("a100", "h100")])
@pytest.mark.parametrize("count", [4, 8])
@pytest.mark.parametrize("pause_s", [0.0, 5.0, 28.0])
def test_as_many_machines_are_made_as_there_are_jobs(
    tmp_path: Path, names: Sequence[str], count: int, pause_s: float
) -> None:
    world = two_pools(tmp_path, names)
    jobs = submit(world, count, pause_s)
    world.run_until(lambda: all(each.status is JobState.SUCCEEDED for each in jobs), 2000)
    assert world.farm.made.total() == 2 * count
    world.close()


def test_machines_that_come_first_wait_for_the_work_that_can_use_no_others(
    tmp_path: Path,
) -> None:
    world = two_pools(tmp_path, ["a100", "h100"])
    flexible, narrow = submit(world, 1, 1.0)
    for machine in world.farm.machines.values():
        if machine.spec.name == "a100":
            machine.boots_at += 100
    world.run_until(lambda: narrow.status is JobState.RUNNING, 60)
    assert flexible.status is JobState.PENDING, "its own machine is coming"
    world.run_until(lambda: flexible.status is JobState.RUNNING, 200)
    assert world.farm.made.total() == 2
    world.close()
