"""Specs of pools in SQL and in the mirror: each is there once, and no longer than it is needed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, func, select, text, update
from tests.control.pool_scenarios import pool
from tests.control.world import ROOT, World
from tests.databases import ON_BOTH, empty_url_at

from muster.control.modules import cluster_entities
from muster.control.pool.audit import AUDITS
from muster.control.pool.performing.orders import read_spec
from muster.control.pool.records import Pool, Slice, pools, slices
from muster.control.pool.requests import PoolRequests
from muster.control.pool.specs import pool_revisions
from muster.control.pool.states import PoolStatus
from muster.core.specs.pool import MAX_SETTINGS_BYTES, PoolSpec
from muster.core.states.slice import SliceStatus
from muster.store.audit.finding import carry_out, stored_in
from muster.store.database.address import parsed
from muster.store.database.migrating import migrate

pytestmark = ON_BOTH
LONG = {"script": "x" * (MAX_SETTINGS_BYTES - 100)}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, {})
    yield world
    assert_sound(world)
    world.close()


def assert_sound(world: World) -> None:
    """Rows obey all rules about pools, and a mirror that is read anew has the same specs."""
    with world.store.engine.connect() as connection:
        stored = stored_in(connection, cluster_entities())
        assert [carry_out(audit, stored, 9).first for audit in AUDITS] == [[]] * len(AUDITS)
    before = {each.id: each.spec for each in world.slices()}
    world.store.reload()
    assert {each.id: each.spec for each in world.store.live.of(Slice).values()} == before


def kept(world: World) -> list[int]:
    """The former revisions whose specs are stored."""
    with world.store.engine.connect() as connection:
        found = connection.execute(select(pool_revisions.c.revision))
        return sorted(found.scalars())


def ready(world: World, count: int) -> bool:
    return [each.status for each in world.slices()] == [SliceStatus.READY] * count


def specs(world: World) -> set[int]:
    """The objects that are the specs of the pool and of its slices."""
    (pool_,) = world.plane.live.of(Pool).values()
    return {id(pool_.spec), *(id(each.spec) for each in world.slices())}


def test_spec_of_many_slices_is_stored_once_and_is_one_object(world: World) -> None:
    world.apply(pool(min_slices=20, max_slices=20, settings=LONG))
    world.run(100)
    assert len(specs(world)) == 1
    world.restart_controller()
    assert len(world.slices()) == 20
    assert len(specs(world)) == 1
    with world.store.engine.connect() as connection:
        for table in (slices, pool_revisions):
            rows = "".join(map(str, connection.execute(select(table))))
            assert "xxx" not in rows


def test_former_spec_is_kept_until_its_last_slice_has_ended(world: World) -> None:
    first, second, third = ({"cpu": cpu, "memory": "8GiB"} for cpu in (4, 5, 6))
    world.apply(pool(min_slices=2, machine=first))
    world.run_until(lambda: ready(world, 2))
    world.apply(pool(min_slices=3, machine=second))
    world.run_until(lambda: ready(world, 3))
    assert kept(world) == [1]
    world.apply(pool(min_slices=3, machine=third))
    assert kept(world) == [1, 2]
    world.restart_controller()
    found = [(each.revision, each.spec.machine.cpu // 1000) for each in world.slices()]
    assert found == [(1, 4), (1, 4), (2, 5)]
    with world.store.engine.connect() as connection:
        for revision, cpu in enumerate((4, 5, 6), 1):
            spec = read_spec(connection, ("cpu", revision))
            assert spec is not None
            assert spec.machine.cpu == cpu * 1000
        assert read_spec(connection, ("cpu", 4)) is None
    for each in [*world.slices()][:2]:
        assert kept(world) == [1, 2]
        id_ = each.id
        world.ask(lambda work, parts: parts[PoolRequests].delete_slice(work, ROOT, id_, 0.0))  # noqa: B023
        world.run(20)
    assert kept(world) == [2]
    world.ask(lambda work, parts: parts[PoolRequests].delete(work, ROOT, "cpu"))
    world.run_until(lambda: not world.plane.live.of(Pool), 200)
    assert kept(world) == []


def test_revision_without_slices_is_not_kept(world: World) -> None:
    for cpu in (4, 5, 6):
        world.apply(pool(machine={"cpu": cpu, "memory": "8GiB"}))
    assert kept(world) == []


def test_what_changes_in_place_holds_for_slices_that_are_there(world: World) -> None:
    world.farm.boot_s = 1e6
    world.apply(pool(min_slices=1, price=1.0, boot_timeout=3_000))
    world.run(10)
    (slice_,) = world.slices()
    world.apply(pool(min_slices=1, price=2.0, boot_timeout=60))
    assert slice_.price == 2.0
    world.restart_controller()
    (slice_,) = world.slices()
    assert slice_.spec.boot_timeout == 60
    world.run_until(lambda: slice_.doomed is not None, 200)
    with world.store.engine.connect() as connection:
        assert connection.execute(select(slices.c.machine_price)).scalars().first() == 2.0


def test_shorter_limit_is_looked_at_when_it_ends(world: World) -> None:
    world.farm.boot_s = 1e6
    world.apply(pool(min_slices=1, boot_timeout=3_000))
    world.run(10)
    (slice_,) = world.slices()
    world.apply(pool(min_slices=1, boot_timeout=60))
    world.run(55)
    assert slice_.doomed is not None


def test_pool_that_changes_does_not_write_its_spec_again(world: World) -> None:
    world.apply(pool(settings=LONG))
    mine, others = (_stored(pool(settings=LONG, price=price)) for price in (0, 7))
    _write(world, others)  # as nobody does: to see whether it is written over
    world.ask(lambda work, parts: parts[PoolRequests].pause(work, ROOT, "cpu"))
    with world.store.engine.begin() as connection:
        row = connection.execute(select(pools.c.spec, pools.c.status)).one()
    assert (row.spec, row.status) == (others, PoolStatus.PAUSED)
    _write(world, mine)


def _stored(spec: PoolSpec) -> str:
    return spec.model_dump_json(exclude_defaults=True)


def _write(world: World, spec: str) -> None:
    with world.store.engine.begin() as connection:
        connection.execute(update(pools).values(spec=spec))


def test_former_databases_keep_one_spec_of_each_revision(tmp_path: Path) -> None:
    engine = create_engine(parsed(empty_url_at(tmp_path)))

    with engine.begin() as connection:
        migrate(connection, "0017")
        for statement, rows in (_POOLS, _SLICES):
            for row in rows:
                connection.execute(text(statement), row)
        migrate(connection)
        paused = connection.execute(select(pools.c.name).where(pools.c.was_paused == 1))
        assert paused.scalars().all() == ["cpu"]
        kept = connection.execute(select(pool_revisions)).all()
        assert [(row.pool, row.revision) for row in kept] == [("cpu", 1)]
        former = read_spec(connection, ("cpu", 1))
        assert former is not None
        assert former.price == 2.0, "the newest of two that changed in place"
        c = slices.c
        found = connection.execute(select(c.size, c.made, c.machine_price).order_by(c.id)).all()
        assert [tuple(row) for row in found] == [(2, 1, 1.0), (2, 1, 2.0), (2, 1, 0.0), (2, 1, 0.0)]
        assert connection.execute(select(func.count()).select_from(pools)).scalar() == 2
    engine.dispose()


def _insert(table: str, *names: str) -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"INSERT INTO {table} ({quoted}) VALUES ({', '.join(f':{name}' for name in names)})"


_BOTH = {
    "group": "default",
    "status_changed_at": 1.0,
    "created_at": 1.0,
    "tries": 0,
    "retry_at": 0.0,
}
_POOL = {
    **_BOTH,
    "standing": "[]",
    "reported": "",
    "losses": "[]",
    "pardoned_at": 0.0,
    "replacing": 0,
}
_SLICE = {
    **_BOTH,
    "pool": "cpu",
    "machines": '[["a", "i-1", ""], ["b", "", ""]]',
    "secret": "",
    "failed": 0,
    "generation": 0,
}
_POOLS = (
    _insert("pools", *_POOL, "id", "name", "revision", "status", "spec", "reason_numbers"),
    [
        {**_POOL, "id": f"pool-{name}", "name": name, "revision": revision, "status": "TRIPPED"}
        | {"reason_numbers": numbers, "spec": _stored(pool(name))}
        for name, revision, numbers in (("cpu", 2, '{"was_paused": true}'), ("other", 1, "{}"))
    ],
)
_SLICES = (
    _insert("slices", *_SLICE, "id", "revision", "status", "spec"),
    [
        {**_SLICE, "id": id_, "revision": revision, "status": status}
        | {"spec": _stored(pool(price=price))}
        for id_, revision, status, price in (
            ("slc-1", 1, "READY", 1.0),
            ("slc-2", 1, "READY", 2.0),
            ("slc-3", 2, "READY", 0.0),
            ("slc-4", 0, "TERMINATED", 0.0),
        )
    ],
)
