"""The last decision about demand is stored as it changes, bounded, and survives the controller."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from sqlalchemy import select, text
from tests.control.pool_scenarios import job, pool
from tests.control.world import ADA, BOB, ROOT, World
from tests.databases import ON_BOTH

from muster.control.group.requests import GroupRequests
from muster.control.pool import stored_decisions
from muster.control.pool.decisions import decision_view
from muster.control.pool.outlook import GroupOutlook
from muster.control.pool.records import Pool
from muster.control.pool.requests import PoolRequests
from muster.control.pool.stored_decisions import (
    StoredDecision,
    group_decisions,
    read_decisions,
    seen_by,
)
from muster.core.specs import QuotaSpec
from muster.core.views.pools import DecisionView

pytestmark = ON_BOTH


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, {})
    world.farm.boot_s = 1e6
    world.apply(pool(machine={"cpu": 8, "memory": "8GiB"}, max_slices=2))
    world.run(1)
    yield world
    world.close()


def stored(world: World) -> Mapping[str, StoredDecision]:
    with world.store.engine.connect() as connection:
        return read_decisions(connection)


def outlook(world: World) -> GroupOutlook | None:
    found = world.cluster.groups["default"].outlook
    assert found is None or isinstance(found, GroupOutlook)
    return found


def decided(world: World) -> DecisionView:
    """The decision of the controller that runs."""
    found = outlook(world)
    assert found is not None
    pool_of: dict[str, str] = {each.id: each.pool for each in world.slices()}
    return decision_view(found, world.plane.live, pool_of, ROOT)


def test_whole_decision_survives_a_restart_until_there_is_a_new_one(world: World) -> None:
    quota = {"level": "user", "name": "default/default/bob", "sessions": 1}
    spec = QuotaSpec.model_validate(quota)
    world.ask(lambda work, parts: parts[GroupRequests].put_quota(work, spec))
    mine = world.submit(job("mine", tasks=3, cpu=4))
    world.submit(job("huge", cpu=64))
    world.submit(job("beyond", tasks=2, cpu=4), BOB)
    world.run(30)
    before, at = decided(world), stored(world)["default"].decided_at
    world.restart_controller()
    assert outlook(world) is None, "this controller has decided nothing yet"
    found = stored(world)["default"]
    assert found == (at, before)
    tasks = [each.tasks for each in found.view.entries]
    assert tasks[:3] == [(f"{mine.id}/{number}",) for number in range(3)]
    assert len(tasks) == 4
    assert {each.pool for each in found.view.entries} == {"cpu"}
    assert all(each.slices and each.why for each in found.view.entries)
    (pending,) = found.view.pending
    assert (pending.entries, pending.remaining) == (4, "16GiB memory")
    (unmet,) = found.view.unmet
    assert [each.code for each in unmet.pools[0].reasons] == ["POOL_TOO_SMALL"]
    (withheld,) = found.view.withheld
    assert [each.code for each in withheld.reasons] == ["QUOTA_IN_USE"]
    world.run(5)
    assert outlook(world) is not None
    assert stored(world)["default"].decided_at > at


def test_decision_that_stays_as_it_was_is_not_stored_again(world: World) -> None:
    world.submit(job("some"))
    world.run(30)
    at = stored(world)["default"].decided_at
    world.apply(pool("other", machine={"cpu": 1, "memory": "1GiB"}))
    world.run(30)
    assert stored(world)["default"].decided_at == at
    world.submit(job("more", cpu=64))
    world.run(5)
    assert stored(world)["default"].decided_at > at


def test_decisions_that_follow_each_other_fast_are_stored_once_a_second(world: World) -> None:
    times = set()
    for number in range(20):
        world.submit(job(f"j{number}", cpu=64 + number))
        world.run(0.3)
        times.add(stored(world)["default"].decided_at)
    assert len(times) <= 8
    world.run(5)
    assert len(stored(world)["default"].view.unmet) == 20, "the last one is stored in the end"


def test_a_group_has_one_row_and_none_without_pools(world: World) -> None:
    for number in range(5):
        world.submit(job(f"j{number}", cpu=64 + number))
        world.run(2)
        assert [*stored(world)] == ["default"]
    world.ask(lambda work, parts: parts[PoolRequests].delete(work, ROOT, "cpu"))
    world.run(120)
    assert not world.plane.live.of(Pool)
    assert stored(world) == {}


def test_stored_decision_has_a_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_decisions, "MAX_BYTES", 4_000)
    world.submit(job("some", tasks=16))
    for number in range(20):
        world.submit(job(f"j{number}", cpu=64 + number))
    world.run(5)
    with world.store.engine.connect() as connection:
        (size,) = map(len, connection.execute(select(group_decisions.c.decision)).scalars())
    whole, view = decided(world), stored(world)["default"].view
    assert size <= 4_000
    assert len(view.entries) + view.other_entries == len(whole.entries)
    assert len(view.unmet) + view.other_unmet == len(whole.unmet) + whole.other_unmet
    assert view.unmet, "entries give way first"


def test_stored_decision_names_to_nobody_what_is_of_others(world: World) -> None:
    world.submit(job("mine", cpu=4))
    world.submit(job("other", cpu=4), BOB)
    world.submit(job("huge", cpu=64), BOB)
    world.run(30)
    world.restart_controller()
    live, view = world.plane.live, stored(world)["default"].view
    to_ada = seen_by(ADA, view, live)
    assert [live.sessions[each.session].owner for each in to_ada.entries] == [ADA.owner]  # type: ignore[index]
    assert to_ada.other_entries == 1
    assert to_ada.unmet[0].shape.first is None
    assert seen_by(BOB, view, live).unmet[0].shape.first is not None
    assert seen_by(ROOT, view, live) == view


def test_stored_decision_that_cannot_be_read_is_left_out(world: World) -> None:
    with world.store.engine.begin() as connection:
        connection.execute(text("UPDATE group_decisions SET decision = '{\"routed\": 1}'"))
    assert stored(world) == {}
