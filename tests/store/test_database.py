"""Opening a database: a new one, a former one, and what is none of Muster's."""

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.schema import CreateIndex
from tests.databases import ON_BOTH, die_half_way, empty_url_at, url_at

from muster.control.modules import cluster_entities
from muster.store import schema
from muster.store.database import (
    HEAD,
    MIGRATIONS,
    DatabaseUnusable,
    open_engine,
)
from muster.store.database.address import parsed, sqlite_file

pytestmark = ON_BOTH


def version(url: str) -> str:
    engine = open_engine(url)
    with engine.connect() as connection:
        found = connection.scalars(text("SELECT version_num FROM alembic_version")).one()
    engine.dispose()
    return str(found)


def assert_schema(connection: Connection) -> None:
    """The tables are those that the code works with."""
    assert cluster_entities()  # they declare their tables themselves
    context = MigrationContext.configure(connection)
    assert compare_metadata(context, schema.metadata) == []
    # That does not look at the conditions of partial indexes.
    indexes = [index for table in schema.metadata.tables.values() for index in table.indexes]
    if connection.dialect.name == "sqlite":
        made = connection.scalars(text("SELECT sql FROM sqlite_master WHERE type = 'index'"))
        meant = [str(CreateIndex(index).compile(connection)) for index in indexes]
        assert sorted(sql for sql in made if sql) == sorted(meant)
        return
    made = connection.scalars(
        text(
            "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class ON indexrelid = oid "
            "WHERE indpred IS NOT NULL AND relnamespace = 'public'::regnamespace"
        )
    )
    condition = "postgresql_where"
    partial = (each for each in indexes if each.dialect_kwargs.get(condition) is not None)
    assert sorted(made) == sorted(str(each.name) for each in partial)


def test_migrations_lead_to_the_schema(tmp_path: Path) -> None:
    engine = open_engine(empty_url_at(tmp_path))
    with engine.connect() as connection:
        assert_schema(connection)
    engine.dispose()
    assert ScriptDirectory(str(MIGRATIONS)).get_current_head() == HEAD


def test_text_is_in_the_order_of_its_bytes(tmp_path: Path) -> None:
    engine = open_engine(url_at(tmp_path))
    words = ["B", "a", "a-b", "a/1", "ab", "~", "é"]
    with engine.begin() as connection:
        for word in reversed(words):
            connection.execute(schema.cluster.insert().values(key=word, value=""))
        found = connection.scalars(schema.cluster.select().order_by(schema.cluster.c.key))
        assert [*found] == words
    engine.dispose()


def test_values_are_in_no_error(tmp_path: Path) -> None:
    engine = open_engine(url_at(tmp_path))
    row = schema.cluster.insert().values(key="x", value="secret")
    with engine.begin() as connection:
        connection.execute(row)
    with pytest.raises(IntegrityError) as refused, engine.begin() as connection:
        connection.execute(row)
    assert "secret" not in str(refused.value)
    engine.dispose()


def test_database_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    url = url_at(tmp_path)
    engine = open_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseUnusable, match="newer version of Muster \\(migration 9999"):
        open_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{HEAD}'"))
    engine.dispose()
    assert version(url) == HEAD


@pytest.mark.parametrize("alembic", [False, True])
def test_database_of_another_program_is_left_alone(tmp_path: Path, alembic: bool) -> None:
    url = empty_url_at(tmp_path)
    engine = _raw_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE invoices (id INTEGER)"))
        if alembic:
            connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
            connection.execute(text("INSERT INTO alembic_version VALUES ('0001')"))
        before = sorted(inspect(connection).get_table_names())
    engine.dispose()
    file = sqlite_file(url)
    content = file.read_bytes() if file is not None else b""
    with pytest.raises(DatabaseUnusable, match=r"another program's \(it has the tables invoices\)"):
        open_engine(url)
    if file is not None:
        assert file.read_bytes() == content
        assert [each.name for each in tmp_path.iterdir()] == [file.name]
    with engine.connect() as connection:
        assert sorted(inspect(connection).get_table_names()) == before
    engine.dispose()


def _raw_engine(url: str) -> Engine:
    """An engine on a database that is not looked at."""
    return create_engine(parsed(url))


@pytest.mark.parametrize("statements", [2, 20, 45])
def test_migration_that_is_killed_half_way_leaves_nothing_and_is_run_again(
    tmp_path: Path, statements: int
) -> None:
    url = empty_url_at(tmp_path)
    die_half_way(f"from muster.store.database import open_engine; open_engine({url!r})", statements)
    engine = _raw_engine(url)
    with engine.connect() as connection:
        assert inspect(connection).get_table_names() == []
    engine.dispose()
    engine = open_engine(url)
    with engine.connect() as connection:
        assert_schema(connection)
    engine.dispose()
