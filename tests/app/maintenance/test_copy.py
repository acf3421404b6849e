"""A cluster moves from one database to another, and back."""

import gzip
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from tests.app.maintenance.conftest import copy_file
from tests.databases import Server

from muster.app.database import only_controller
from muster.app.home import Home
from muster.app.maintenance.backup import back_up
from muster.app.maintenance.checking import check
from muster.app.maintenance.copying import copy
from muster.app.maintenance.place import database_of
from muster.core.errors import Conflict, MusterError
from muster.store.database import open_engine, sqlite_url
from muster.store.database.reading import EmptyDatabase, reading

MUSTER = (sys.executable, "-c", "from muster.cli.main import main; main()")
MANY = 60_000
"""Rows that take long enough to be interrupted."""


def rows(url: str, path: Path) -> Sequence[bytes]:
    """All rows of a database, in an order of their own."""
    path.unlink(missing_ok=True)
    back_up(url, path)
    return sorted(gzip.decompress(path.read_bytes()).splitlines()[1:])


def is_empty(url: str) -> bool:
    try:
        with reading(url):
            return False
    except EmptyDatabase:
        return True


@pytest.fixture
def empty(postgresql: Server) -> str:
    return postgresql.url(postgresql.empty_database())


def test_cluster_moves_to_a_server_and_back_with_every_row(
    home: Home, tmp_path: Path, empty: str
) -> None:
    source, back = sqlite_url(home.database), sqlite_url(tmp_path / "back.db")
    before = home.database.read_bytes()
    assert copy(home, str(home.database), empty).made.differing == []
    assert copy(home, empty, str(tmp_path / "back.db")).made.differing == []
    kept = rows(source, tmp_path / "rows")
    assert rows(empty, tmp_path / "rows") == kept
    assert rows(back, tmp_path / "rows") == kept
    assert home.database.read_bytes() == before
    for url in (empty, back):
        assert [each for each in check(url) if each.found or each.trouble] == []


def test_numbers_that_json_lacks_and_odd_text_arrive_as_they_were(
    home: Home, tmp_path: Path, empty: str
) -> None:
    odd = 'a "quoted" \\ {brace}, NULL, ünï \U0001f40d\n\t'
    with closing(sqlite3.connect(home.database)) as connection:
        connection.execute(
            "UPDATE agents SET lease_s = 9e999, bar_note = ?, leave_by = 1e-300", [odd]
        )
        connection.commit()
    copy(home, str(home.database), empty)
    with reading(empty) as (connection_, _):
        found = connection_.execute(text("SELECT lease_s, bar_note, leave_by FROM agents")).first()
    assert found == (float("inf"), odd, 1e-300)


def test_text_that_a_server_cannot_hold_is_named_and_nothing_arrives(
    home: Home, empty: str
) -> None:
    with closing(sqlite3.connect(home.database)) as connection:
        connection.execute("UPDATE agents SET bar_note = 'a' || char(0) || 'b'")
        connection.commit()
    with pytest.raises(MusterError, match=r"refuses rows of agents: .*NUL"):
        copy(home, str(home.database), empty)
    assert is_empty(empty)


# -- what is refused -----------------------------------------------------------------------------


def test_copy_that_cannot_be_is_refused_in_a_sentence_and_changes_nothing(
    home: Home, tmp_path: Path, postgresql: Server, empty: str
) -> None:
    file, full = str(home.database), postgresql.url(postgresql.database())
    other = postgresql.empty_database()
    postgresql.execute("CREATE TABLE theirs (x int)", other)
    newer = postgresql.database()
    postgresql.execute("UPDATE alembic_version SET version_num = '9999'", newer)
    weak = postgresql.empty_database()
    postgresql.execute("DROP ROLE IF EXISTS weak")
    postgresql.execute("CREATE ROLE weak LOGIN")
    postgresql.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC", weak)
    locked = postgresql.empty_database()
    postgresql.execute(f"ALTER DATABASE {locked} SET default_transaction_read_only = on")
    text_file = tmp_path / "text.db"
    text_file.write_text("no database " * 100)
    link = tmp_path / "link.db"
    link.symlink_to(file)
    wrong = postgresql.tcp_url("postgres", "not-the-password")
    cases: list[tuple[str, str, str]] = [
        (file, file, "cannot be copied to itself"),
        (file, str(link), "cannot be copied to itself"),
        (file, "", "the name of the database is empty"),
        (file, full, "is not empty, it holds a cluster already"),
        (file, postgresql.url(other), "is another program's .it has the tables theirs"),
        (file, postgresql.url(newer), "was written by a newer version of Muster"),
        (file, postgresql.url(locked), "is read-only"),
        (file, wrong, "password authentication failed.*look at the user and the password"),
        (file, postgresql.url("nowhere"), "does not exist: make it"),
        (
            file,
            postgresql.url(weak).replace("muster@", "weak@"),
            "permission denied for schema.*make the user the owner",
        ),
        (file, "mysql://somewhere/db", "there is no database of kind 'mysql'"),
        (file, str(text_file), "is there already: choose another name"),
        (str(tmp_path / "none.db"), empty, "there is no database"),
        (str(text_file), empty, "file is not a database"),
        (postgresql.url(other), str(tmp_path / "new.db"), "is another program's"),
        (empty, str(tmp_path / "new.db"), "is empty: it has no cluster yet"),
    ]
    for source, target, told in cases:
        with pytest.raises(MusterError, match=told) as refused:
            copy(home, source, target)
        assert "not-the-password" not in str(refused.value)
        assert "\n" not in str(refused.value)
    assert is_empty(empty)
    assert not (tmp_path / "new.db").exists()
    assert [path.name for path in tmp_path.iterdir() if "unfinished" in path.name] == []


def test_cluster_that_runs_is_not_moved(
    home: Home, tmp_path: Path, postgresql: Server, empty: str
) -> None:
    with home.locked(), pytest.raises(Conflict, match="muster down"):
        copy(home, str(home.database), empty)
    beside = tmp_path / "beside.db"
    copy_file(home.database, beside)
    engine = open_engine(sqlite_url(beside))
    with only_controller(engine, home), pytest.raises(Conflict, match="a controller, or another"):
        copy(home, str(beside), str(tmp_path / "new.db"))
    engine.dispose()
    source = postgresql.url(postgresql.database())
    engine = open_engine(source)
    with only_controller(engine), pytest.raises(Conflict, match="a controller, or another command"):
        copy(home, source, str(tmp_path / "new.db"))
    engine.dispose()


def test_home_whose_database_was_copied_works_on_the_copy_from_then_on(
    home: Home, tmp_path: Path, empty: str
) -> None:
    assert copy(home, str(home.database), str(tmp_path / "elsewhere.db")).is_used
    assert home.settings().database == sqlite_url(tmp_path / "elsewhere.db")
    assert copy(home, str(tmp_path / "elsewhere.db"), empty).is_used
    assert database_of(home, None) == empty
    assert not copy(home, str(home.database), str(tmp_path / "other.db")).is_used
    assert database_of(home, None) == empty


# -- kill -9 -------------------------------------------------------------------------------------


@pytest.fixture
def large(home: Home) -> Home:
    with closing(sqlite3.connect(home.database)) as connection:
        connection.executemany(
            "INSERT INTO submissions VALUES (?, 'job-x', 1.0)",
            ((f"{number:032x}",) for number in range(MANY)),
        )
        connection.commit()
    return home


def killed_once(began: Callable[[], object], *words: str) -> None:
    """Run a command and kill it with SIGKILL once it has ``began``."""
    process = subprocess.Popen([*MUSTER, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        deadline_s = time.monotonic() + 60.0
        while not began():
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline_s
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL


def test_copy_to_a_server_that_is_killed_leaves_it_empty_and_begins_anew(
    large: Home, tmp_path: Path, postgresql: Server, empty: str
) -> None:
    watching = create_engine(empty.replace("postgresql", "postgresql+psycopg", 1))

    def busy() -> bool:
        with watching.connect() as connection:
            inserts = text(
                "SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'INSERT INTO submissions%'"
            )
            return bool(connection.execute(inserts).scalar())

    killed_once(busy, "db", "copy", str(large.database), empty)
    watching.dispose()
    assert is_empty(empty)
    copy(large, str(large.database), empty)
    source = sqlite_url(large.database)
    assert rows(empty, tmp_path / "rows") == rows(source, tmp_path / "rows")


def test_copy_to_a_file_that_is_killed_leaves_none_and_begins_anew(
    large: Home, tmp_path: Path
) -> None:
    target = tmp_path / "new.db"
    growing = tmp_path / ".new.db.unfinished"

    def busy() -> bool:
        return growing.exists() and growing.stat().st_size > 1_000_000

    killed_once(busy, "db", "copy", str(large.database), str(target))
    assert not target.exists()
    copy(large, str(large.database), str(target))
    assert not growing.exists()
    source = sqlite_url(large.database)
    assert rows(sqlite_url(target), tmp_path / "rows") == rows(source, tmp_path / "rows")
