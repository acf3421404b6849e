"""One store writes at a time, and a commit whose answer was lost is settled."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, select, text
from tests.databases import ON_BOTH, url_at
from tests.store.test_unit import a_job, unit

from muster.store import schema
from muster.store.database import HEAD, bring_up_to_date, open_engine, opening
from muster.store.database.committing import DatabaseAway
from muster.store.fence import Fenced, Holder, WentBack
from muster.store.store import CommitUnknown, Store
from muster.store.unit import Unit

pytestmark = ON_BOTH

LIMIT_S = 20.0
FIRST, SECOND = Holder("the first", 1.0), Holder("the second", 1000.0)


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Callable[[Holder], Store]]:
    stores: list[Store] = []

    def opened(holder: Holder) -> Store:
        stores.append(Store(open_engine(url_at(tmp_path)), holder=holder))
        return stores[-1]

    yield opened
    for store in stores:
        store.close()


def submit(store: Store, seed: int) -> None:
    work = unit(store)
    work.add(a_job(seed))
    store.commit(work)


def jobs(store: Store) -> int:
    with store.engine.connect().execution_options(readonly=True) as connection:
        return len(connection.execute(select(schema.jobs.c.id)).all())


def commits(store: Store) -> int:
    with store.engine.connect().execution_options(readonly=True) as connection:
        return int(connection.scalars(select(schema.fence.c.commits)).one())


def test_store_whose_database_another_took_over_writes_nothing_and_names_the_other(
    open_store: Callable[[Holder], Store],
) -> None:
    first = open_store(FIRST)
    submit(first, 1)
    second = open_store(SECOND)
    with pytest.raises(Fenced, match=r"another controller writes .*\(the second, since 1970"):
        submit(first, 2)
    submit(second, 3)
    assert len(second.live.jobs) == jobs(second) == commits(second) == 2
    for _ in range(2):
        with pytest.raises(Fenced):
            first.reload()
        with pytest.raises(Fenced):
            submit(first, 4)
    assert first.is_fenced()
    assert not second.is_fenced()


def test_store_that_is_fenced_among_its_statements_has_written_nothing(
    open_store: Callable[[Holder], Store],
) -> None:
    first = open_store(FIRST)
    work = unit(first)
    work.add(a_job(1))
    taken = first.engine.connect()
    with taken.begin():
        taken.execute(text("UPDATE fence SET epoch = epoch + 1, holder = 'a person'"))
    with pytest.raises(Fenced, match="a person"):
        first.commit(work)
    taken.close()
    assert jobs(first) == 0


def lose_the_answer(store: Store, monkeypatch: pytest.MonkeyPatch, *, written: bool) -> None:
    """The connection breaks at the next commit, before or after it was made."""
    dialect = store.engine.dialect
    commit = dialect.do_commit

    def lost(raw: Any) -> None:
        monkeypatch.setattr(dialect, "do_commit", commit)
        if written:
            commit(raw)
        if dialect.name == "sqlite":
            raw.rollback()
            raise sqlite3.OperationalError("disk I/O error")
        raw.dbapi_connection.close()
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(dialect, "do_commit", lost)


@pytest.mark.parametrize("written", [False, True])
def test_commit_whose_answer_was_lost_is_settled(
    open_store: Callable[[Holder], Store], monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    store = open_store(FIRST)
    submit(store, 1)
    work = unit(store)
    work.add(a_job(2))
    lose_the_answer(store, monkeypatch, written=written)
    with pytest.raises(CommitUnknown):
        store.commit(work)
    settle_when_reachable(store, work, written)
    if not written:
        store.reload()
    assert len(store.live.jobs) == jobs(store) == commits(store) == 1 + written
    submit(store, 3)
    assert len(store.live.jobs) == jobs(store) == commits(store) == 2 + written


def settle_when_reachable(store: Store, work: Unit, written: bool) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while True:
        try:
            assert store.settle(work) is written
        except DatabaseAway:  # it is being reached again
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        else:
            return


def test_commit_in_doubt_is_settled_as_fenced_where_another_took_over(
    open_store: Callable[[Holder], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_store(FIRST)
    work = unit(first)
    work.add(a_job(1))
    lose_the_answer(first, monkeypatch, written=False)
    with pytest.raises(CommitUnknown):
        first.commit(work)
    open_store(SECOND)
    with pytest.raises(Fenced):
        settle_when_reachable(first, work, False)


@pytest.mark.parametrize("back", ["commits = commits - 1", "epoch = epoch - 1"])
def test_store_writes_nothing_to_an_older_state_than_its_own(
    open_store: Callable[[Holder], Store], back: str
) -> None:
    store = open_store(FIRST)
    for seed in (1, 2):
        submit(store, seed)
    assert not store.is_fenced()
    with store.engine.begin() as standby:
        standby.execute(text(f"UPDATE fence SET {back}"))
    assert store.is_fenced()
    with pytest.raises(WentBack, match="when it is started again"):
        submit(store, 3)
    with pytest.raises(WentBack):
        store.reload()
    assert jobs(store) == 2
    assert jobs(open_store(SECOND)) == 2
    assert store.is_fenced()


def test_commit_in_doubt_is_not_settled_by_an_older_state(
    open_store: Callable[[Holder], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(FIRST)
    submit(store, 1)
    work = unit(store)
    work.add(a_job(2))
    lose_the_answer(store, monkeypatch, written=False)
    with pytest.raises(CommitUnknown):
        store.commit(work)
    with store.engine.begin() as standby:
        standby.execute(text("UPDATE fence SET commits = commits - 1"))
    with pytest.raises(WentBack):
        settle_when_reachable(store, work, False)


HERE, THERE = (
    Holder(name, 1.0, home=name, renews_s=900.0) for name in ("this machine", "another machine")
)


@pytest.mark.parametrize(
    ("holders", "waits"),
    [
        ([HERE, HERE], False),
        ([HERE, THERE], True),
        ([HERE, THERE, THERE], True),
        ([replace(HERE, home=""), replace(HERE, home="")], True),
        ([replace(HERE, renews_s=0.0), THERE], False),
    ],
)
def test_leases_are_waited_for_of_a_holder_that_is_not_proven_gone(
    open_store: Callable[[Holder], Store], holders: list[Holder], waits: bool
) -> None:
    """One that had the same home is gone: its lock is another process's now. That proves nothing of
    those before it."""
    *_, last = (open_store(holder) for holder in holders)
    assert last.former_renews_s == (pytest.approx(900.0, abs=30.0) if waits else 0.0)


def test_leases_are_not_waited_for_of_a_holder_that_left(
    open_store: Callable[[Holder], Store],
) -> None:
    open_store(HERE).leave()
    assert open_store(THERE).former_renews_s == 0.0


def test_holder_that_was_overtaken_leaves_the_row_of_its_successor_alone(
    open_store: Callable[[Holder], Store],
) -> None:
    overtaken = open_store(HERE)
    open_store(THERE)
    overtaken.leave()
    assert open_store(HERE).former_renews_s > 0.0


def migrate(store: Store) -> None:
    """Run a migration that changes no table on the database of a store that works on it."""

    def to_this_version(connection: Connection) -> None:
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{HEAD}'"))

    with store.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0015'"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "migrate", to_this_version)
        bring_up_to_date(store.engine)


def test_store_whose_tables_were_migrated_writes_no_more(
    open_store: Callable[[Holder], Store],
) -> None:
    store = open_store(HERE)
    migrate(store)
    with pytest.raises(Fenced, match="a migration to version"):
        submit(store, 1)
    assert jobs(store) == 0


@pytest.mark.parametrize(("after", "waits"), [(HERE, False), (THERE, True)])
def test_leases_of_before_a_migration_are_waited_for_as_without_it(
    open_store: Callable[[Holder], Store], after: Holder, waits: bool
) -> None:
    migrate(open_store(HERE))
    assert open_store(after).former_renews_s == (pytest.approx(900.0, abs=30.0) if waits else 0.0)
