"""Tables of an older version become this version's, whole or not at all."""

import pytest
from sqlalchemy import create_engine, inspect
from tests.databases import Server, die_half_way

from muster.app.home import Home
from muster.app.maintenance.migrating import migrate, missing_migrations
from muster.core.errors import Conflict, MusterError
from muster.store.database import HEAD, sqlite_url
from muster.store.database.address import parsed
from muster.store.database.migrating import migrate as migrate_tables
from muster.store.database.postgresql import held_alone
from muster.store.database.reading import reading

OLD = "0005"
TOKENS = 300


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest, home: Home) -> str:
    """The URL of a database of an older version, with some state."""
    if request.param == "sqlite":
        home.database.unlink()
        url = sqlite_url(home.database)
    else:
        server: Server = request.getfixturevalue("postgresql")
        url = server.url(server.empty_database())
    engine = create_engine(parsed(url))
    with engine.begin() as connection:
        migrate_tables(connection, OLD)
        connection.exec_driver_sql(
            'INSERT INTO tokens (hash, kind, name, domain, project, "user", role, created_at)'
            f" WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {TOKENS})"
            " SELECT i || '-hash-of-a-token', 'user', 'laptop', 'default', 'default',"
            " 'user-' || i, 'user', 1.0 FROM n"
        )
    engine.dispose()
    return url


def users(url: str) -> int:
    with reading(url) as (connection, _):
        return int(connection.exec_driver_sql("SELECT count(*) FROM users").scalar_one())


def test_dry_run_says_what_is_missing_and_changes_nothing(old: str) -> None:
    migrations = missing_migrations(old)
    assert migrations.found == OLD
    assert migrations.missing[0][0] == "0006"
    assert migrations.missing[-1][0] == HEAD
    assert migrations.missing[0][1].startswith("domains, projects, users")
    assert missing_migrations(old) == migrations


def test_migration_keeps_the_state_and_the_second_has_nothing_to_do(old: str) -> None:
    assert migrate(old).found == OLD
    assert users(old) == TOKENS
    assert migrate(old).missing == []


def test_migration_that_is_killed_half_way_leaves_the_old_tables(old: str) -> None:
    words = ["db", "migrate", "--database", old.removeprefix("sqlite:///")]
    die_half_way(f"from muster.cli.program import app; app({words})", 10)
    with reading(old) as (connection, migration):
        assert migration == OLD
        assert not inspect(connection).has_table("notices")
    migrate(old)
    assert users(old) == TOKENS


def test_migration_under_a_running_controller_is_refused(
    home: Home, old: str, request: pytest.FixtureRequest
) -> None:
    if old.startswith("sqlite"):
        with home.locked(), pytest.raises(Conflict, match="muster down"):
            migrate(old)
        return
    engine = create_engine(parsed(old))
    with held_alone(engine), pytest.raises(Conflict, match="a controller, or another command"):
        migrate(old)
    engine.dispose()


def test_migration_of_a_newer_or_a_strange_database_is_refused(
    postgresql: Server,
) -> None:
    newer, strange = postgresql.database(), postgresql.empty_database()
    postgresql.execute("UPDATE alembic_version SET version_num = '9999'", newer)
    postgresql.execute("CREATE TABLE theirs (x int)", strange)
    for name, told in ((newer, "newer version"), (strange, "another program's")):
        for do in (migrate, missing_migrations):
            with pytest.raises(MusterError, match=told):
                do(postgresql.url(name))


def test_empty_database_gets_its_tables(postgresql: Server) -> None:
    url = postgresql.url(postgresql.empty_database())
    assert missing_migrations(url).found is None
    assert migrate(url).missing[0][0] == "0001"
    assert missing_migrations(url).missing == []
