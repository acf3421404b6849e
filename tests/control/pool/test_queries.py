"""Pools and slices as SQL tells them, on both kinds of database."""

from pathlib import Path

import pytest
from sqlalchemy import text
from tests.control.pool_scenarios import pool
from tests.control.world import ADA, ROOT, World
from tests.databases import ON_BOTH

from muster.control.pool import queries
from muster.control.pool.queries import (
    list_pools,
    list_slices,
    read_ended_use,
    read_pool,
    read_slice,
)
from muster.control.pool.requests import PoolRequests
from muster.core.errors import InvalidSpec, NotFound
from muster.core.states.slice import SliceStatus
from muster.store.queries.listing import Listing

pytestmark = ON_BOTH


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A pool with two slices, the first of which was deleted after about an hour."""
    world = World(tmp_path, {})
    world.apply(pool(min_slices=2, price=3.0, settings={}))
    world.apply(pool("other"))
    world.run(3_600)
    first = world.slices("cpu")[0].id
    world.ask(lambda work, parts: parts[PoolRequests].delete_slice(work, ROOT, first, 0.0))
    world.run(60)
    return world


def test_pools_and_slices_are_listed_newest_first_with_those_that_ended(world: World) -> None:
    with world.store.engine.connect() as connection:
        assert [each.name for each in list_pools(connection, ADA, Listing()).items] == [
            "other",
            "cpu",
        ]
        every = list_slices(connection, ADA, Listing(), pool="cpu").items
        assert [each.status for each in every] == [
            SliceStatus.READY,
            SliceStatus.READY,
            SliceStatus.TERMINATED,
        ]
        assert list_slices(connection, ADA, Listing(), pool="other").items == ()
        page = list_slices(connection, ADA, Listing(limit=2))
        assert page.next == page.items[-1].id
        rest = list_slices(connection, ADA, Listing(limit=2, cursor=page.next))
        assert [each.id for each in rest.items] == [every[-1].id]
        with pytest.raises(InvalidSpec, match="a slice has no name"):
            list_slices(connection, ADA, Listing(name="x"))
    world.close()


def test_pool_is_found_by_name_and_id_and_slice_by_the_beginning_of_its_id(world: World) -> None:
    with world.store.engine.connect() as connection:
        found = read_pool(connection, ADA, "cpu")
        assert read_pool(connection, ADA, found.id) == found
        slice_ = world.slices("cpu")[0]
        assert read_slice(connection, ADA, slice_.id).id == slice_.id
        with pytest.raises(NotFound):
            read_slice(connection, ADA, "slc-zzzz")
    world.close()


def test_list_of_slices_counts_their_machines_and_reads_none(world: World) -> None:
    with world.store.engine.begin() as connection:
        connection.execute(text("UPDATE slices SET machines = 'not read'"))
    with world.store.engine.connect() as connection:
        found = list_slices(connection, ADA, Listing()).items
    assert [(each.machines, each.other_machines, each.price) for each in found] == [
        ((), 1, 3.0)
    ] * 3
    assert all(each.machine_hours > 0 for each in found)
    ended = found[-1]
    assert ended.cost == pytest.approx(3.0 * ended.machine_hours)
    world.close()


def test_use_of_slices_that_ended_is_summed_up_by_group(world: World) -> None:
    with world.store.engine.connect() as connection:
        use = read_ended_use(connection)
    ended = use.by_group["default"]
    assert ended.slices == 1
    assert ended.machine_hours == pytest.approx(1.0, abs=0.05)
    assert ended.cost == pytest.approx(3.0, abs=0.15)
    assert use.since is not None
    world.close()


def test_use_is_summed_up_of_the_newest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    second = world.slices("cpu")[0].id
    world.ask(lambda work, parts: parts[PoolRequests].delete_slice(work, ROOT, second, 0.0))
    world.run(60)
    monkeypatch.setattr(queries, "MAX_ENDED", 1)
    with world.store.engine.connect() as connection:
        use = read_ended_use(connection)
    assert use.by_group["default"].slices == 1, "the newest"
    assert use.since is not None
    assert use.since > world.clock.now() - 70
    world.close()
