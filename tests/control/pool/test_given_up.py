"""Slices whose machines are off for good and cannot be deleted: an operator vouches for that."""

from pathlib import Path

import pytest
from proving.hollow.performers.providers import FarmFaults
from tests.control.pool.pooled import make, only, pool_of
from tests.control.pool_scenarios import job
from tests.control.world import ROOT, World

from muster.control.pool.pools import UNLISTED_S
from muster.control.pool.records import Slice
from muster.control.pool.requests import PoolRequests
from muster.control.pool.states import PoolStatus
from muster.core.errors import Conflict
from muster.core.reasons import ReasonCode
from muster.core.states import AgentStatus, JobState
from muster.core.states.slice import SLICE_TABLE, SliceStatus


def give_up(world: World, slice_: Slice) -> None:
    world.ask(lambda work, parts: parts[PoolRequests].give_up_slice(work, ROOT, slice_.id))


def switch_off(world: World, slice_: Slice) -> None:
    """Have the machines of a slice be off, and nothing to be learnt of them."""
    for machine in world.farm.of(slice_.id):
        world.farm.stop(machine)
    world.farm.faults = FarmFaults(unknown=1.0)


def agent_status(world: World) -> AgentStatus:
    (agent,) = world.plane.live.agents.values()
    return agent.status


def status(slice_: Slice) -> SliceStatus:
    return slice_.status


def test_a_slice_ends_once_an_operator_vouches_for_it_and_its_work_runs_elsewhere(
    tmp_path: Path,
) -> None:
    world = make(tmp_path)
    submitted = world.submit(job("one"))
    world.run_until(lambda: bool(world.plane.live.ledger))
    dead = only(world)
    switch_off(world, dead)
    world.run_until(lambda: agent_status(world) is AgentStatus.UNREACHABLE)
    with pytest.raises(Conflict, match=r"may still run 1 kernel: try again in \d+ s, when its"):
        give_up(world, dead)
    world.run_until(lambda: agent_status(world) is AgentStatus.LOST)
    world.ask(lambda work, parts: parts[PoolRequests].delete_slice(work, ROOT, dead.id, 0.0))
    world.run(1_000)
    assert status(dead) in SLICE_TABLE.live, "its provider cannot delete it"
    give_up(world, dead)
    world.run(1)
    assert (status(dead), dead.reason and dead.reason.code) == (
        SliceStatus.FAILED if dead.failed else SliceStatus.TERMINATED,
        ReasonCode.SLICE_GIVEN_UP,
    )
    assert all(each.fixed["slice"] != dead.id for each in world.plane.live.agents.values())
    world.farm.faults = FarmFaults()
    world.run_until(lambda: submitted.status is JobState.SUCCEEDED, 4_000)
    world.run_until(lambda: not world.farm.of(dead.id), 1_000)
    world.close()


def test_a_slice_with_an_agent_that_is_alive_is_not_given_up(tmp_path: Path) -> None:
    world = make(tmp_path, min_slices=1)
    world.run_until(lambda: status(only(world)) is SliceStatus.READY)
    with pytest.raises(Conflict, match="is alive: without --gone its machines are deleted"):
        give_up(world, only(world))
    assert only(world).doomed is None
    world.close()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_slice_nobody_joined_is_given_up_by_a_controller_that_dies_meanwhile_too(
    tmp_path: Path, restarts: bool
) -> None:
    world = make(tmp_path, min_slices=1)
    id_ = only(world).id
    world.farm.faults = FarmFaults(lost=1.0)
    give_up(world, only(world))
    world.run(5)
    assert [each.id for each in world.slices()][:1] == [id_], "its provider was not told yet"
    if restarts:
        world.restart_controller()
    world.run(100)
    assert id_ not in {each.id for each in world.slices()}
    world.farm.faults = FarmFaults()
    world.run_until(lambda: not world.farm.of(id_), 1_000)
    world.close()


def test_a_pool_ends_though_its_provider_can_list_in_part_only(tmp_path: Path) -> None:
    world = make(tmp_path)
    pool = pool_of(world)
    world.farm.faults = FarmFaults(partial_lists=1.0)
    world.ask(lambda work, parts: parts[PoolRequests].delete(work, ROOT, "cpu"))
    world.run(UNLISTED_S - 20)
    assert pool.status is PoolStatus.DELETING
    world.run(40)
    assert (pool.status, world.plane.live.of(type(pool))) == (PoolStatus.DELETED, {})
    world.close()
