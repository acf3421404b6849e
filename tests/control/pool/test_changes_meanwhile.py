"""Pools that are changed, paused or deleted while slices are in every state, and controllers that
start anew meanwhile."""

from pathlib import Path
from typing import Any

import pytest
from tests.control.pool_scenarios import job, pool
from tests.control.world import ROOT, World

from muster.control.group.requests import GroupRequests
from muster.control.plan import plan_job
from muster.control.pool.records import Pool
from muster.control.pool.requests import PoolRequests
from muster.control.pool.states import PoolStatus
from muster.core.specs import ScalingGroup
from muster.core.states import JobState
from muster.core.states.slice import SliceStatus


def make(path: Path, group: dict[str, Any] | None = None, **keys: Any) -> World:
    """A world with a pool, and no machines of its own."""
    spec = {"name": "default", "agent_silence": 15, "kernel_lease": 30, **(group or {})}
    world = World(path, {}, group=ScalingGroup.model_validate(spec))
    world.apply(pool(**keys))
    world.run(1)
    return world


def status(world: World) -> PoolStatus:
    (pool_,) = world.plane.live.of(Pool).values()
    return pool_.status


def test_a_paused_pool_whose_machines_were_silent_is_paused_still_once_they_are_heard(
    tmp_path: Path,
) -> None:
    world = make(tmp_path, min_slices=4)
    world.run_until(lambda: [each.status for each in world.slices()] == [SliceStatus.READY] * 4)
    world.ask(lambda work, parts: parts[PoolRequests].pause(work, ROOT, "cpu"))
    silent = [*world.agents.values()][:2]
    for agent in silent:
        world.disconnect(agent)
    world.run_until(lambda: status(world) is PoolStatus.TRIPPED, 60)
    for agent in silent:
        world.connect(agent)
    world.run(5)
    assert status(world) is PoolStatus.PAUSED
    world.close()


@pytest.mark.parametrize("restarts", [False, True])
def test_machines_that_join_after_labels_changed_have_the_present_ones(
    tmp_path: Path, restarts: bool
) -> None:
    world = make(tmp_path, attributes={"zone": "a"}, min_slices=1)
    world.apply(pool(attributes={"zone": "b"}, min_slices=1))
    if restarts:
        world.restart_controller()
    world.run_until(lambda: [each.status for each in world.slices()] == [SliceStatus.READY])
    (agent,) = world.plane.live.agents.values()
    assert agent.attributes["zone"] == "b"
    world.close()


def test_labels_that_change_with_preemptible_leave_machines_what_they_are(tmp_path: Path) -> None:
    world = make(tmp_path, attributes={"zone": "a"}, min_slices=1)
    world.run_until(lambda: [each.status for each in world.slices()] == [SliceStatus.READY])
    world.apply(pool(attributes={"zone": "b"}, min_slices=1, preemptible=True))
    (agent,) = world.plane.live.agents.values()
    assert (agent.attributes["zone"], agent.attributes["preemptible"]) == ("b", "false")
    world.close()


def test_ceilings_count_the_machines_that_slices_of_former_revisions_have(tmp_path: Path) -> None:
    world = make(tmp_path, {"max_machines": 6}, slice_size=4, min_slices=1)
    world.apply(pool(slice_size=1, min_slices=1, max_slices=50))
    world.submit(job("some", tasks=50))
    world.run(5)
    assert sum(len(each.machines) for each in world.slices()) == 6
    world.close()


def test_nothing_is_promised_on_coming_machines_that_they_do_not_have(tmp_path: Path) -> None:
    world = make(tmp_path, min_slices=1)
    world.apply(pool(min_slices=1, machine={"cpu": 8, "memory": "16GiB"}))
    submitted = world.submit(job("large", cpu=8))
    world.run(5)
    assert len(world.slices()) == 2, "the coming slice is too small"
    world.run_until(lambda: submitted.status is JobState.SUCCEEDED)
    world.close()


def test_slices_that_booted_while_no_controller_was_there_are_not_given_up(tmp_path: Path) -> None:
    world = make(tmp_path, min_slices=1, boot_timeout=60)
    (slice_,) = world.slices()
    world.restart_controller(away_s=500)
    world.run(60)
    assert [(each.id, each.status) for each in world.slices()] == [(slice_.id, SliceStatus.READY)]
    world.close()


def test_a_group_that_a_pool_has_left_routes_nothing_to_it(tmp_path: Path) -> None:
    world = make(tmp_path)
    world.ask(lambda work, parts: parts[GroupRequests].put_group(work, ScalingGroup(name="other")))
    world.apply(pool("small", machine={"cpu": 1, "memory": "1GiB"}))
    world.run(1)
    world.apply(pool(group="other"))
    world.run(1)
    view = plan_job(world.plane.live, world.cluster, ROOT, job("two"), world.clock.now())
    assert not view.adds
    assert not world.slices()
    world.close()
