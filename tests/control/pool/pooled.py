"""Worlds with pools, and looks at them."""

from pathlib import Path
from typing import Any

from tests.control.pool_scenarios import pool
from tests.control.world import World

from muster.control.job.explanation import explain_job
from muster.control.pool.records import Pool, Slice
from muster.control.pool.states import PoolStatus
from muster.core.reasons import ReasonCode
from muster.core.specs import ScalingGroup
from muster.store.records import Job


def only(world: World) -> Slice:
    (slice_,) = world.slices()
    return slice_


def codes(world: World, submitted: Job) -> set[ReasonCode]:
    """The reasons that `muster why` gives for a job."""
    answer = explain_job(world.plane.live, world.cluster, submitted.id, world.clock.now())
    return {ReasonCode(each.code) for each in answer.reasons}


def sentences(world: World, submitted: Job) -> str:
    answer = explain_job(world.plane.live, world.cluster, submitted.id, world.clock.now())
    return "; ".join(each.sentence for each in answer.reasons)


def pool_of(world: World, name: str = "cpu") -> Pool:
    return next(each for each in world.plane.live.of(Pool).values() if each.name == name)


def pool_status(world: World, name: str = "cpu") -> PoolStatus:
    return pool_of(world, name).status


def make(path: Path, **keys: Any) -> World:
    """A world with a pool, and no machines of its own."""
    world = World(path, {}, group=ScalingGroup(name="default", agent_silence=15, kernel_lease=30))
    world.apply(pool(**keys))
    world.run(1)
    return world
