"""Situations with pools, by which tests reach all that their handlers declare."""

from typing import Any

from proving.hollow.performers.providers import FarmFaults
from tests.control.conftest import MakeWorld
from tests.control.world import ROOT, World

from muster.autoscaling.standing import CreateOutcome
from muster.control.pool.deleting import GONE
from muster.control.pool.requests import PoolRequests
from muster.core.results import SchedulingResult
from muster.core.specs import JobSpec
from muster.core.specs.pool import PoolSpec


def pool(name: str = "cpu", **keys: Any) -> PoolSpec:
    """A pool of machines with four processors."""
    whole: dict[str, Any] = {
        "name": name,
        "provider": "local",
        "machine": {"cpu": 4, "memory": "8GiB"},
        "max_slices": 4,
        "idle_timeout": 60,
    }
    return PoolSpec.model_validate({**whole, **keys})


def job(name: str, tasks: int = 1, cpu: int = 4, **keys: Any) -> JobSpec:
    """A job of which each task needs a machine of its own."""
    whole = {"name": name, "command": ["x"], "tasks": tasks, "resources": {"cpu": cpu}}
    return JobSpec.model_validate({**whole, **keys})


def slice_that_comes_and_goes(make: MakeWorld) -> World:
    world = make({})
    world.apply(pool())
    world.run(1.0)
    world.submit(job("one"))
    world.run(200.0)
    assert world.farm.deleted
    assert not world.slices()
    return world


def slice_that_is_refused(make: MakeWorld) -> World:
    world = make({})
    world.farm.refuses["cpu"] = CreateOutcome.STOCK_OUT
    world.apply(pool(min_slices=1))
    world.run(1.0)
    return world


def provider_that_cannot_tell(make: MakeWorld) -> World:
    world = make({})
    world.farm.faults = FarmFaults(unknown=1.0)
    world.apply(pool(min_slices=1, request_timeout=20))
    world.run(60.0)
    return world


def slice_that_never_boots(make: MakeWorld) -> World:
    world = make({})
    world.farm.faults = FarmFaults(never_boots=1.0)
    world.apply(pool(min_slices=1, boot_timeout=30))
    world.run(60.0)
    return world


def pool_that_is_paused_and_deleted(make: MakeWorld) -> World:
    world = make({})
    world.apply(pool(min_slices=2))
    world.run(60.0)
    world.ask(lambda work, parts: parts[PoolRequests].pause(work, ROOT, "cpu"))
    world.ask(lambda work, parts: parts[PoolRequests].resume(work, ROOT, "cpu"))
    world.ask(lambda work, parts: parts[PoolRequests].delete(work, ROOT, "cpu"))
    world.run(30.0)
    return world


SCENARIOS = {
    ("MakeSlices", SchedulingResult.SUCCESS): slice_that_comes_and_goes,
    ("MakeSlices", SchedulingResult.NEED_RETRY): provider_that_cannot_tell,
    ("MakeSlices", SchedulingResult.GIVE_UP): slice_that_is_refused,
    ("DeleteSlices", SchedulingResult.SUCCESS): slice_that_comes_and_goes,
    ("DeleteSlices", SchedulingResult.NEED_RETRY): provider_that_cannot_tell,
}
UNLESS = {GONE: slice_that_never_boots}
MOVING = [pool_that_is_paused_and_deleted]
