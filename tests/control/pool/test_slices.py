"""Slices from the wish until they are gone, with hollow machines under virtual time."""

from pathlib import Path

from tests.control.pool_scenarios import job, pool
from tests.control.world import World

from muster.control.pool.records import Slice
from muster.core.states import JobState
from muster.core.states.slice import SliceStatus


def status(slice_: Slice) -> SliceStatus:
    """The status as it is now."""
    return slice_.status


def test_a_job_makes_a_slice_runs_and_the_slice_goes(tmp_path: Path) -> None:
    world = World(tmp_path, {})
    world.apply(pool())
    world.run(1)
    submitted = world.submit(job("one"))
    (made,) = world.slices()
    assert status(made) is SliceStatus.BOOTING
    world.run_until(lambda: submitted.status is JobState.SUCCEEDED)
    assert made.ready_at is not None
    world.run_until(lambda: not world.slices(), 120)
    assert status(made) is SliceStatus.TERMINATED
    assert not world.farm.machines
    assert not world.plane.live.agents
    world.close()


def test_ten_jobs_of_one_machine_make_no_more_than_the_pool_may_have(tmp_path: Path) -> None:
    world = World(tmp_path, {})
    world.apply(pool(max_slices=3))
    jobs = [world.submit(job(f"j{number}")) for number in range(10)]
    world.run(1)
    assert len(world.slices()) == 3
    world.run_until(lambda: all(each.status is JobState.SUCCEEDED for each in jobs))
    assert len(world.farm.made) == 3
    world.run_until(lambda: not world.slices(), 200)
    assert not world.farm.machines
    world.close()
