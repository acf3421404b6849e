"""Statements that are compiled once find what any other query finds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError
from tests.databases import ON_BOTH, open_unsynced, url_at

from muster.store.batch import inserting
from muster.store.lookup import Lookup, Selection, given
from muster.store.schema import domains

pytestmark = ON_BOTH

SINCE = {f"d{number:03}": float(number % 5) for number in range(100)}


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    """A connection that has begun nothing yet, to a database with some domains."""
    engine = open_unsynced(url_at(tmp_path))
    with engine.begin() as connection:
        inserting(domains, ("name", "created_at")).execute(connection, [*SINCE.items()])
    with engine.connect().execution_options(readonly=True) as connection:
        yield connection
    engine.dispose()


def test_rows_are_those_for_the_values_that_are_given(connection: Connection) -> None:
    named = select(domains).where(domains.c.name > "d010", domains.c.created_at == given("since"))
    lookup = Lookup(named.order_by(domains.c.name).limit(3))
    for since, numbers in ((2.0, (12, 17, 22)), (4.0, (14, 19, 24)), (9.0, ())):
        values = {"since": since}
        wanted = [(f"d{number:03}", since) for number in numbers]
        assert [tuple(row) for row in lookup.rows(connection, values)] == wanted
        assert [tuple(row) for row in lookup.each(connection, values)] == wanted
        assert [(row.name, row.created_at) for row in lookup.named(connection, values)] == wanted
        first = lookup.first(connection, values)
        assert (None if first is None else tuple(first)) == next(iter(wanted), None)


@pytest.mark.parametrize("count", [0, 1, 2, 8, 9, 65])
def test_selection_finds_each_key_once_however_many_there_are(
    connection: Connection, count: int
) -> None:
    selection = Selection(
        lambda keys: select(domains.c.name).where(
            domains.c.name.in_(keys), domains.c.created_at < given("before")
        )
    )
    keys = [*SINCE][:count]
    found = [name for (name,) in selection.rows(connection, keys, {"before": 3.0})]
    assert sorted(found) == [name for name in keys if SINCE[name] < 3.0]


def test_failure_is_told_as_of_any_other_query(connection: Connection) -> None:
    lookup = Lookup(select(domains.c.name).where(domains.c.created_at == given("since")))
    with pytest.raises(SQLAlchemyError):
        lookup.rows(connection, {"since": object()})
    connection.rollback()
    with pytest.raises(SQLAlchemyError):
        list(lookup.each(connection, {"since": object()}))
