"""Rows that are written together are the rows that were given, whatever they have in common."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    event,
    select,
)
from sqlalchemy.exc import IntegrityError
from tests.databases import ON_BOTH, open_unsynced, url_at

from muster.store.batch import RangeUpdate, inserting, inserting_together, updating_together

members = Table(
    "members",
    MetaData(),
    Column("gang", String, primary_key=True),
    Column("idx", Integer, primary_key=True, autoincrement=False),
    Column("status", String),
    Column("note", String, nullable=True),
)
COLUMNS = ["gang", "idx", "status", "note"]
doubled = {"note": lambda note: note and note * 2}
insertion = inserting_together(members, COLUMNS, ["idx"], doubled, 3)
KEYS = ["gang", "idx", "status"]
range_update = RangeUpdate(members, ["status", "note"], KEYS, "idx")
update_together = updating_together(members, ["status", "note"], KEYS, "idx", doubled, 3)

ONE_ENGINE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
pytestmark = ON_BOTH

gangs, statuses = st.sampled_from("ab"), st.sampled_from(["NEW", "OLD"])
notes = st.sampled_from([None, "x", '{"y", \\\\}', "NULL"])
rows = st.lists(
    st.tuples(gangs, st.integers(0, 12), statuses, notes), unique_by=lambda row: row[:2]
)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_unsynced(url_at(tmp_path))
    yield engine
    engine.dispose()


@contextmanager
def empty_table(engine: Engine) -> Iterator[tuple[Connection, list[str]]]:
    """An empty table, and the statements that were run, each as often as it was."""
    told: list[str] = []
    with engine.connect() as connection:
        members.metadata.create_all(connection)
        driver = connection.connection.driver_connection
        if isinstance(driver, sqlite3.Connection):
            driver.set_trace_callback(told.append)
        else:
            event.listen(
                connection, "before_cursor_execute", lambda *arguments: told.append(arguments[2])
            )
        yield connection, told
        connection.rollback()
        if isinstance(driver, sqlite3.Connection):
            driver.set_trace_callback(None)


def stored(connection: Connection) -> dict[tuple[str, int], tuple[str, str | None]]:
    found = connection.execute(select(members))
    return {(row.gang, row.idx): (row.status, row.note) for row in found}


@ONE_ENGINE
@given(rows)
def test_inserted_rows_are_those_that_were_given(
    engine: Engine, rows: list[tuple[Any, ...]]
) -> None:
    with empty_table(engine) as (connection, _):
        insertion.execute(connection, rows)
        wanted = {row[:2]: (row[2], row[3] and row[3] * 2) for row in rows}
        assert stored(connection) == wanted


@ONE_ENGINE
@given(rows, rows)
def test_range_of_rows_changes_those_that_were_given_and_have_the_status_that_is_said(
    engine: Engine, before: list[tuple[Any, ...]], changes: list[tuple[Any, ...]]
) -> None:
    with empty_table(engine) as (connection, _):
        inserting(members, COLUMNS).execute(connection, before)
        wanted = stored(connection)
        told = [(f"{status}ER", note, gang, idx, status) for gang, idx, status, note in changes]
        hit = [row for row in told if wanted.get(row[2:4], ("",))[0] == row[4]]
        wanted |= {(row[2], row[3]): (row[0], row[1]) for row in hit}
        assert range_update.execute(connection, told) == len(hit)
        assert stored(connection) == wanted


@ONE_ENGINE
@given(rows, rows)
def test_rows_changed_together_are_those_that_were_given_and_have_the_status_that_is_said(
    engine: Engine, before: list[tuple[Any, ...]], changes: list[tuple[Any, ...]]
) -> None:
    with empty_table(engine) as (connection, _):
        inserting(members, COLUMNS).execute(connection, before)
        wanted = stored(connection)
        told = [(f"{status}ER", note, gang, idx, status) for gang, idx, status, note in changes]
        hit = [row for row in told if wanted.get(row[2:4], ("",))[0] == row[4]]
        wanted |= {(row[2], row[3]): (row[0], row[1] and row[1] * 2) for row in hit}
        assert update_together.execute(connection, told) == len(hit)
        assert stored(connection) == wanted


def test_rows_that_change_alike_are_told_together(engine: Engine) -> None:
    with empty_table(engine) as (connection, told):
        insertion.execute(connection, [("a", idx, "NEW", None) for idx in (0, 2, 4, 6, 8, 9, 11)])
        changes = [("OLD", None, "a", idx, "NEW") for idx in (0, 2, 4, 6, 8, 9, 11)]
        told.clear()
        assert update_together.execute(connection, changes) == 7
        assert len(told) == (3 if engine.dialect.name == "sqlite" else 1)  # 3 rows an update


def test_gang_that_changes_alike_is_told_once(engine: Engine) -> None:
    gang = [("a", idx, "NEW", None) for idx in range(9)]
    with empty_table(engine) as (connection, told):
        insertion.execute(connection, gang)
        changes = [("OLD", None, "a", idx, "NEW") for idx in range(9)]
        assert range_update.execute(connection, changes) == 9
        assert len(told) == (4 if engine.dialect.name == "sqlite" else 2)  # 3 rows an insert


def test_error_tells_no_values_of_rows_for_they_may_be_secrets(engine: Engine) -> None:
    rows = [("a", 0, "NEW", "a secret")] * 2
    with empty_table(engine) as (connection, _), pytest.raises(IntegrityError) as refused:
        inserting(members, COLUMNS).execute(connection, rows)
    assert "INSERT INTO members" in str(refused.value)
    assert "a secret" not in str(refused.value)
