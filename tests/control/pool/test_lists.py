"""Machines that a provider lists late, or of slices that have ended, and ceilings that count what
there really is; with hollow machines under virtual time."""

from pathlib import Path
from typing import Any

from proving.hollow.performers.providers import FarmFaults
from tests.control.pool_scenarios import job, pool
from tests.control.world import ROOT, World

from muster.control.pool.records import Pool, SliceId
from muster.control.pool.requests import PoolRequests
from muster.control.pool.states import PoolStatus
from muster.core.specs import ScalingGroup
from muster.core.states import AgentStatus, JobState
from muster.core.states.slice import SliceStatus
from muster.providers.provider import MachineListing


def make(path: Path, group: ScalingGroup | None = None, **keys: Any) -> World:
    """A world with a pool, and no machines of its own."""
    spec = group or ScalingGroup(name="default", agent_silence=5, kernel_lease=10)
    world = World(path, {}, group=spec)
    world.apply(pool(**keys))
    world.run(1)
    return world


def pool_of(world: World) -> Pool:
    (found,) = world.plane.live.of(Pool).values()
    return found


def test_a_machine_that_old_lists_do_not_have_yet_is_not_gone_though_it_is_silent(
    tmp_path: Path,
) -> None:
    world = make(tmp_path, min_slices=1)
    world.run_until(lambda: world.slices()[0].status is SliceStatus.READY)
    (young,) = world.slices()
    world.farm.list = lambda pool: MachineListing((), complete=True)  # type: ignore[method-assign]
    young.listed = {}  # as if it became READY before the first list
    (agent,) = world.agents.values()
    world.disconnect(agent)
    world.run_until(lambda: world.plane.live.agents[agent.id].status is AgentStatus.LOST)
    world.run(60)
    assert young.missing == 0
    assert young.doomed is None
    world.close()


def orphaned(world: World) -> SliceId:
    """A slice that has ended, of which a late call makes three machines."""
    world.submit(job("one"))
    world.run_until(lambda: not world.slices(), 300)
    (ended,) = world.farm.made
    names = [f"late-{number}" for number in range(3)]
    world.farm.boot_s = 1e9
    world.farm.make(ended, "cpu", pool(), names, "a-token")
    return ended


def test_machines_that_come_after_their_slice_has_ended_stop_nothing_and_are_deleted(
    tmp_path: Path,
) -> None:
    world = make(tmp_path)
    orphaned(world)
    world.run(100)
    assert pool_of(world).status is PoolStatus.ACTIVE
    world.farm.boot_s = 1.0
    more = world.submit(job("more"))
    world.run_until(lambda: more.status is JobState.SUCCEEDED, 100)
    world.run_until(lambda: not world.farm.machines, 600)
    world.close()


def test_a_pool_ends_once_its_provider_has_no_machine_of_it(tmp_path: Path) -> None:
    world = make(tmp_path)
    orphaned(world)
    deleted = pool_of(world)
    world.ask(lambda work, parts: parts[PoolRequests].delete(work, ROOT, "cpu"))
    world.run_until(lambda: deleted.status is PoolStatus.DELETED, 60)
    assert not world.farm.machines
    world.close()


def test_a_pool_whose_provider_lists_nothing_ends_all_the_same(tmp_path: Path) -> None:
    world = make(tmp_path)
    world.farm.faults = FarmFaults(unknown=1.0)
    deleted = pool_of(world)
    world.run(60)
    world.ask(lambda work, parts: parts[PoolRequests].delete(work, ROOT, "cpu"))
    world.run(60)
    assert deleted.status is PoolStatus.DELETING
    world.run_until(lambda: deleted.status is PoolStatus.DELETED, 300)
    world.close()
