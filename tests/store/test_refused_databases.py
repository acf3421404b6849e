"""A database that cannot be used is refused with one sentence, which tells the way on."""

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from tests.databases import OF_ITS_OWN, Server

from muster.store.database import DatabaseUnusable, database_url, open_engine, shown_url, sqlite_url
from muster.store.database.reading import reading, unusable
from muster.store.fence import Fence, Holder

pytestmark = OF_ITS_OWN


@pytest.fixture
def name(postgresql: Server) -> str:
    return postgresql.database()


def refusal(url: str) -> str:
    """The sentence with which a database is refused; it is one, and tells no password."""
    with pytest.raises(DatabaseUnusable) as refused:
        open_engine(url)
    sentence = str(refused.value)
    assert "\n" not in sentence
    assert "of-the-tests" not in sentence
    assert "wrong" not in sentence
    return sentence


def test_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "muster.db").write_text("not a database, but long enough to look like one" * 50)
    sentence = refusal(sqlite_url(tmp_path / "muster.db"))
    assert "cannot be used: file is not a database: name another file, or put a backup" in sentence


def test_file_whose_directory_is_not_there_is_refused(tmp_path: Path) -> None:
    sentence = refusal(sqlite_url(tmp_path / "nowhere" / "muster.db"))
    assert sentence.endswith("look at whether its directory is there and can be written")


def test_file_that_was_cut_off_is_refused_with_the_way_to_restore_it(tmp_path: Path) -> None:
    file = tmp_path / "muster.db"
    open_engine(sqlite_url(file)).dispose()
    with file.open("r+b") as opened:
        opened.truncate(50_000)
    sentence = refusal(sqlite_url(file))
    assert sentence.endswith("malformed: put a backup in its place with `muster db restore`")


def test_file_in_the_transaction_of_another_program_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "muster.db"
    open_engine(sqlite_url(file)).dispose()
    monkeypatch.setattr("muster.store.database.sqlite.BUSY_TIMEOUT_S", 0.1)
    with closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("CREATE TABLE others (id INTEGER)")
        assert refusal(sqlite_url(file)).endswith("locked: end the program that works on it")


def test_wrong_password_is_refused_with_the_ways_to_give_one(postgresql: Server, name: str) -> None:
    sentence = refusal(postgresql.tcp_url(name, "wrong"))
    assert f"muster:***@127.0.0.1:{postgresql.port}/{name} cannot be used" in sentence
    assert sentence.endswith("look at the user and the password (PGPASSWORD, ~/.pgpass)")


def test_right_password_opens(postgresql: Server, name: str) -> None:
    engine = open_engine(postgresql.tcp_url(name))
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM jobs")) == 0
    engine.dispose()


def test_database_that_is_not_there_is_refused(postgresql: Server) -> None:
    sentence = refusal(postgresql.url("nowhere"))
    assert 'database "nowhere" does not exist' in sentence
    assert "createdb" in sentence


def test_server_that_does_not_run_is_refused() -> None:
    sentence = refusal("postgresql://muster@127.0.0.1:1/muster")
    assert "look at whether the server runs there" in sentence


def test_read_only_database_is_refused(postgresql: Server, name: str) -> None:
    postgresql.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    sentence = refusal(postgresql.url(name))
    assert "is read-only" in sentence
    postgresql.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    open_engine(postgresql.url(name)).dispose()


def test_server_that_is_too_old_is_refused(
    postgresql: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgresql.url(name)
    monkeypatch.setattr("muster.store.database.postgresql.OLDEST", 99)
    # It does not know all settings either.
    monkeypatch.setattr("muster.store.database.postgresql._SESSION", "SET of_the_future = on")
    assert "version 99 or a newer one is needed" in refusal(url)
    with pytest.raises(DatabaseUnusable, match="version 99 or a newer one"), reading(url):
        pass


def test_sqlite_that_is_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.store.database.sqlite.OLDEST", (99, 1))
    assert "version 99.1 or a newer one is needed" in refusal(sqlite_url(tmp_path / "muster.db"))
    assert not list(tmp_path.iterdir())


def test_database_that_cannot_store_all_text_is_refused(postgresql: Server) -> None:
    postgresql.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    assert "stores text as LATIN1" in refusal(postgresql.url("latin"))


def test_database_without_a_schema_for_tables_is_refused(postgresql: Server) -> None:
    name = postgresql.empty_database()
    postgresql.execute(f"ALTER DATABASE {name} SET search_path = nowhere")
    assert "has no schema of those in the search path" in refusal(postgresql.url(name))


def test_lock_of_a_person_is_not_waited_for_without_end(
    postgresql: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = postgresql.empty_database()
    url = postgresql.url(name)
    monkeypatch.setattr("muster.store.database.patience.LOCK_S", 0.1)
    with psycopg.connect(url) as person:
        person.execute("SELECT pg_advisory_lock(hashtext('muster migration'))")
        sentence = refusal(url)
    assert sentence.endswith("end that one, which pg_stat_activity shows")


def test_user_who_may_make_no_tables_is_refused(postgresql: Server) -> None:
    name = postgresql.empty_database()
    postgresql.execute("CREATE ROLE guest LOGIN")
    sentence = refusal(postgresql.url(name).replace("muster@", "guest@"))
    assert sentence.endswith(
        "permission denied for schema public: make the user the owner of the database"
    )


def test_user_who_may_only_read_is_refused(postgresql: Server, name: str) -> None:
    postgresql.execute("CREATE ROLE reader LOGIN IN ROLE pg_read_all_data")
    url = postgresql.url(name).replace("muster@", "reader@")
    engine = open_engine(url)
    with pytest.raises(SQLAlchemyError) as refused, engine.begin() as connection:
        Fence(Holder("a test", 0.0)).take(connection)
    engine.dispose()
    sentence = str(unusable(url, refused.value))
    assert sentence.endswith("make the user the owner of the database and of all in it")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://ada:secret@db:5433/x?password=other", "postgresql://ada:***@db:5433/x"),
        ("postgres://ada@db/x", "postgresql://ada@db/x"),
        ("postgresql://ada:s%40e@db/x%40y?options=a@b", "postgresql://ada:***@db/x%40y"),
        ("postgresql:///x?host=@abstract", "postgresql:///x"),
        ("/var/lib/x.db", "sqlite:////var/lib/x.db"),
        ("sqlite:////var/lib/x.db", "sqlite:////var/lib/x.db"),
    ],
)
def test_address_is_shown_without_a_password(text: str, shown: str) -> None:
    assert shown_url(database_url(text)) == shown


@pytest.mark.parametrize(
    "text",
    [
        "mysql://ada:secret@db/x",
        "postgresql://ada:secret@db:port/x",
        "postgresql://ada:a@secret@db/x",
        "postgresql://ada:a@b/secret@db/x",
        "postgresql://ada:?@b/secret@db/x",
    ],
)
def test_address_that_is_none_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(DatabaseUnusable, match="expected") as refused:
        database_url(text)
    assert "secret" not in str(refused.value)
