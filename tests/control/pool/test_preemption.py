"""Nobody is displaced for work that a slice will serve which is sure to come in time."""

from pathlib import Path
from typing import Any

from proving.hollow.supervisor import Run
from tests.control.pool_scenarios import job, pool
from tests.control.world import World

from muster.autoscaling.standing import CreateOutcome
from muster.core.specs import ScalingGroup
from muster.core.states import JobState
from muster.store.records import Job


def busy(path: Path, preemption: dict[str, Any] | None = None, **keys: Any) -> tuple[World, Job]:
    """A world with one slice, on which a job of low priority runs for long."""
    allows = {"minimum_lease": 0, **(preemption or {})}
    group = ScalingGroup.model_validate({"name": "default", "preemption": allows})
    world = World(path, {}, group=group, behaviour=lambda start: Run(1000.0))
    world.apply(pool(**keys))
    low = world.submit(job("low", priority=10))
    world.run_until(lambda: low.status is JobState.RUNNING)
    world.run(10)
    return world, low


def displaced(low: Job) -> bool:
    return low.tasks[0].preemption_count > 0


def test_work_of_high_priority_waits_for_its_slice_and_displaces_nobody(tmp_path: Path) -> None:
    world, low = busy(tmp_path)
    high = world.submit(job("high", priority=90))
    world.run_until(lambda: high.status is JobState.RUNNING, 60)
    assert not displaced(low)
    assert world.farm.made.total() == 2
    world.close()


def test_group_that_says_so_displaces_before_slices_are_made(tmp_path: Path) -> None:
    world, low = busy(tmp_path, {"before_scaling": True})
    high = world.submit(job("high", priority=90))
    world.run_until(lambda: high.status is JobState.RUNNING, 20)
    assert displaced(low)
    world.close()


def test_pool_that_may_make_no_more_spares_nobody(tmp_path: Path) -> None:
    world, low = busy(tmp_path, max_slices=1)
    high = world.submit(job("high", priority=90))
    world.run_until(lambda: high.status is JobState.RUNNING, 20)
    assert displaced(low)
    world.close()


def test_slice_that_is_later_than_usual_is_waited_for_no_longer(tmp_path: Path) -> None:
    world, low = busy(tmp_path)
    world.farm.boot_s = 300.0
    high = world.submit(job("high", priority=90))
    world.run(25)
    assert not displaced(low)
    world.run_until(lambda: high.status is JobState.RUNNING, 60)
    assert displaced(low)
    world.close()


def test_slice_whose_provider_refuses_it_is_not_waited_for(tmp_path: Path) -> None:
    world, low = busy(tmp_path)
    world.farm.refuses["cpu"] = CreateOutcome.STOCK_OUT
    high = world.submit(job("high", priority=90))
    world.run_until(lambda: high.status is JobState.RUNNING, 20)
    assert displaced(low)
    world.close()


def test_pool_that_has_never_made_a_slice_is_not_relied_on(tmp_path: Path) -> None:
    world, low = busy(tmp_path, max_slices=1)
    world.apply(pool("new"))
    world.run(5)
    high = world.submit(job("high", priority=90))
    world.run_until(lambda: high.status is JobState.RUNNING, 20)
    assert displaced(low)
    world.close()
