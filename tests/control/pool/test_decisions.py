"""The last decision about demand, as people are shown it: by shape, and bounded."""

from pathlib import Path

import pytest
from tests.control.pool_scenarios import job, pool
from tests.control.world import ADA, BOB, ROOT, World

from muster.control.pool.decisions import (
    MAX_POOLS,
    MAX_SHAPES,
    MAX_SLICES,
    routed_views,
    unmet_views,
)
from muster.control.pool.outlook import GroupOutlook
from muster.core.specs import JobSpec


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path, {})
    world.farm.boot_s = 1e6
    return world


def outlook(world: World) -> GroupOutlook:
    found = world.cluster.groups["default"].outlook
    assert isinstance(found, GroupOutlook)
    return found


def pools_of_slices(world: World) -> dict[str, str]:
    return {each.id: each.pool for each in world.slices()}


def test_sessions_of_one_shape_are_one_line_whoever_handed_them_in(world: World) -> None:
    world.apply(pool(max_slices=100))
    world.submit(job("a", tasks=3), ADA)
    world.submit(job("b", tasks=4, priority=70), BOB)
    for _ in range(4):
        world.run(1)
    views, others = routed_views(outlook(world), pools_of_slices(world), ADA)
    assert others == 0
    (view,) = views
    assert (view.destination, view.pool, view.shape.sessions) == ("coming", "cpu", 7)
    assert len(view.slices) == MAX_SLICES
    assert view.other_slices == 7 - MAX_SLICES
    assert view.shape.first is None  # the first in the queue is another's
    assert routed_views(outlook(world), pools_of_slices(world), ROOT)[0][0].shape.first is not None
    world.close()


def test_tasks_that_have_no_session_yet_are_counted_with_the_slices_that_are_made_for_them(
    world: World,
) -> None:
    world.apply(pool(max_slices=500))
    world.submit(job("a", tasks=400))
    for _ in range(8):
        world.run(1)
    views, _ = routed_views(outlook(world), pools_of_slices(world), ADA)
    assert {each.pool for each in views} == {"cpu"}
    assert sum(each.shape.sessions for each in views) == 400
    assert all(each.shape.first is None or each.shape.first.startswith("ses-") for each in views)
    assert any(each.shape.first is not None for each in views)
    assert any(not each.entry.session for each in outlook(world).decision.routed)
    world.close()


def test_no_more_shapes_and_pools_are_told_than_a_person_can_read(world: World) -> None:
    for number in range(MAX_POOLS + 3):
        world.apply(pool(f"p{number}"))
    for number in range(MAX_SHAPES + 5):
        world.submit(job(f"j{number}", cpu=64 + number))
    world.run(2)
    views, others = unmet_views(outlook(world), ADA)
    assert (len(views), others) == (MAX_SHAPES, 5)
    assert {len(each.pools) for each in views} == {MAX_POOLS}
    assert {each.other_pools for each in views} == {3}
    assert not any(each.could_be_met for each in views)
    world.close()


def test_value_that_no_pool_has_is_told_with_the_nearest(world: World) -> None:
    world.apply(pool(attributes={"zone": "us-east-1a"}))
    rule = {"attribute": "zone", "op": "EQ", "values": ["us-east-1"]}
    placed = {"constraints": [rule]}
    spec = JobSpec.model_validate({"name": "j", "command": ["x"], "placement": placed})
    world.submit(spec)
    world.run(2)
    ((view,), _) = unmet_views(outlook(world), ADA)
    assert view.nearest == "zone=us-east-1a"
    assert view.shape.rules == ("zone=us-east-1",)
    (refusal,) = view.pools
    assert [each.code for each in refusal.reasons] == ["POOL_RULE_UNMET"]
    world.close()


def test_pools_that_have_the_machines_are_told_first(world: World) -> None:
    world.apply(pool("a-small", machine={"cpu": 2, "memory": "1GiB"}))
    world.apply(pool("z-full", max_slices=1))
    world.submit(job("j", tasks=2))
    world.run(2)
    ((view,), _) = unmet_views(outlook(world), ADA)
    assert view.could_be_met
    assert [each.pool for each in view.pools] == ["z-full", "a-small"]
    world.close()
