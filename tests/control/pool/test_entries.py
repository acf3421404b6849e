"""The last decision, entry by entry: in the log when it is news, and for people by id."""

import logging
from pathlib import Path

import pytest
from tests.control.pool_scenarios import job, pool
from tests.control.world import ADA, BOB, World

from muster.control.group.requests import GroupRequests
from muster.control.pool.decisions import withheld_views
from muster.control.pool.entries import entry_views, pending_views
from muster.control.pool.outlook import GroupOutlook
from muster.core.specs import QuotaSpec


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path, {})
    world.farm.boot_s = 1e6
    world.apply(pool(machine={"cpu": 8, "memory": "8GiB"}))
    world.run(1)
    return world


def outlook(world: World) -> GroupOutlook:
    found = world.cluster.groups["default"].outlook
    assert isinstance(found, GroupOutlook)
    return found


def pools_of_slices(world: World) -> dict[str, str]:
    return {each.id: each.pool for each in world.slices()}


def test_entries_are_told_by_session_and_task_to_who_may_see_them(world: World) -> None:
    mine = world.submit(job("mine", tasks=3, coscheduled=True))
    world.submit(job("other"), BOB)
    world.run(2)
    views, others = entry_views(outlook(world), world.plane.live, pools_of_slices(world), ADA)
    assert others == 1, "another's"
    (view,) = views
    assert view.tasks == tuple(f"{mine.id}/{index}" for index in range(3))
    assert (view.destination, view.pool) == ("coming", "cpu")
    assert set(view.slices) <= {each.id for each in world.slices()}
    world.close()


def test_slices_in_flight_tell_what_demand_leaves_of_them(world: World) -> None:
    world.submit(job("some", tasks=3, cpu=4))
    world.run(2)
    (view,) = pending_views(outlook(world).decision, pools_of_slices(world))
    assert (view.pool, view.slices, view.machines, view.entries) == ("cpu", 2, 2, 3)
    assert view.remaining == "4 cpu, 16GiB memory"
    world.close()


def test_what_a_quota_withholds_is_told_to_its_owner(world: World) -> None:
    spec = QuotaSpec.model_validate({"level": "user", "name": "default/default/ada", "sessions": 1})
    world.ask(lambda work, parts: parts[GroupRequests].put_quota(work, spec))
    world.submit(job("some", tasks=3))
    world.run(2)
    ((view,), _) = withheld_views(outlook(world), ADA)
    assert (view.shape.sessions, [each.code for each in view.reasons]) == (2, ["QUOTA_IN_USE"])
    assert withheld_views(outlook(world), BOB) == ((), 1)
    world.close()


def test_each_entry_is_logged_once_with_pool_slice_and_reason(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="muster.control.pool.entries"):
        world.submit(job("some", cpu=4))
        world.submit(job("huge", cpu=64))
        world.run(20)
    (slice_,) = world.slices()
    lines = [record.getMessage() for record in caplog.records]
    entries = [line for line in lines if line.startswith("autoscaler entry group=default")]
    assert entries
    assert len(entries) == len(set(entries)), "each is logged when it is news"
    assert any(f"pool=cpu slice={slice_.id} why=" in line for line in entries)
    (unmet,) = [line for line in lines if line.startswith("autoscaler unmet")]
    assert "pool=cpu code=POOL_TOO_SMALL numbers={" in unmet
    assert any("autoscaler pending group=default pool=cpu slices=1" in line for line in lines)
    world.close()
