"""A cluster's state in a file, and out of it again, into a database of either kind."""

import gzip
import os
import shutil
import sqlite3
import stat
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, delete
from tests.app.maintenance.conftest import copy_file
from tests.databases import Server
from tests.store.watching import Watch

from muster.app.database import only_controller
from muster.app.home import Home
from muster.app.maintenance.backup import back_up
from muster.app.maintenance.checking import check
from muster.app.maintenance.copying import copy
from muster.app.maintenance.restoring import restore
from muster.control.modules import cluster_entities
from muster.core.errors import Conflict, MusterError, Superseded
from muster.store import schema
from muster.store.database import open_engine, sqlite_url
from muster.store.database.migrating import migrate
from muster.store.database.reading import reading
from muster.store.store import Store

MANY = 80_000


def lines(file: Path) -> Sequence[bytes]:
    """The lines of a backup but for the first, in an order of their own."""
    return sorted(gzip.decompress(file.read_bytes()).splitlines()[1:])


def is_sound(url: str) -> bool:
    return not [each for each in check(url) if each.found or each.trouble]


def names(database: Path) -> set[str]:
    with closing(sqlite3.connect(database)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM jobs")}


@pytest.fixture
def url(home: Home) -> str:
    return sqlite_url(home.database)


def test_backup_is_its_owners_alone_and_replaces_nothing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "backup"
    made = back_up(url, file)
    assert made.size_bytes == file.stat().st_size
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    with pytest.raises(MusterError, match="is there already: choose another name"):
        back_up(url, file)
    monkeypatch.setattr(Path, "exists", lambda self: False)  # it came just now
    with pytest.raises(MusterError, match="is there already: choose another name"):
        back_up(url, file)
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "home"]


def test_backup_beside_a_writer_has_the_state_of_one_moment(url: str, tmp_path: Path) -> None:
    engine = open_engine(url)
    with engine.begin() as writer:
        writer.exec_driver_sql("UPDATE jobs SET name = 'not committed'")
        back_up(url, tmp_path / "backup")
    engine.dispose()
    assert not [line for line in lines(tmp_path / "backup") if b"not committed" in line]


def test_memory_does_not_grow_with_the_rows(home: Home, url: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(home.database)) as connection:
        many = ((f"{number:032x}", "job-x", 1.0) for number in range(MANY))
        connection.executemany("INSERT INTO submissions VALUES (?, ?, ?)", many)
        connection.commit()
    restore(sqlite_url(tmp_path / "first.db"), home.database)  # imports what it needs
    tracemalloc.start()
    back_up(url, tmp_path / "backup")
    restore(sqlite_url(tmp_path / "second.db"), tmp_path / "backup")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < MANY * 100, "all rows, each as a tuple, take more than 200 bytes a row"


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_backup_fills_an_empty_database_of_either_kind_with_the_same_rows(
    kind: str, url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    back_up(url, tmp_path / "backup")
    if kind == "sqlite":
        target = sqlite_url(tmp_path / "other.db")
    else:
        server: Server = request.getfixturevalue("postgresql")
        target = server.url(server.empty_database())
    put = restore(target, tmp_path / "backup")
    assert put.made.kept_aside is None
    assert is_sound(target)
    back_up(target, tmp_path / "again")
    assert lines(tmp_path / "again") == lines(tmp_path / "backup")


def test_restored_state_takes_the_place_of_the_present_one_which_is_kept_aside(
    home: Home, url: str, tmp_path: Path
) -> None:
    back_up(url, tmp_path / "backup")
    with closing(sqlite3.connect(home.database)) as connection:
        connection.execute("UPDATE jobs SET name = 'renamed' WHERE name = 'done'")
        connection.commit()
    put = restore(url, tmp_path / "backup")
    assert put.made.kept_aside is not None
    assert "renamed" in names(Path(put.made.kept_aside))
    assert "done" in names(home.database)
    assert stat.S_IMODE(home.database.stat().st_mode) == 0o600
    assert is_sound(url)


def test_restored_state_takes_the_place_of_a_servers_which_is_kept_in_a_schema(
    url: str, tmp_path: Path, postgresql: Server
) -> None:
    back_up(url, tmp_path / "backup")
    target = postgresql.url(postgresql.empty_database())
    restore(target, tmp_path / "backup")
    engine = open_engine(target)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE jobs SET name = 'renamed' WHERE name = 'done'")
    with (
        only_controller(engine),
        pytest.raises(Conflict, match=r"works on the database .* stop it"),
    ):
        restore(target, tmp_path / "backup")
    engine.dispose()
    put = restore(target, tmp_path / "backup")
    assert put.made.kept_aside is not None
    schema = put.made.kept_aside.split()[1]
    with reading(target) as (connection, _):
        query = connection.exec_driver_sql
        assert "renamed" in query(f'SELECT name FROM "{schema}".jobs').scalars().all()
        assert "done" in query("SELECT name FROM jobs").scalars().all()


def test_restore_that_would_forget_live_work_is_refused_until_it_may(
    home: Home, url: str, tmp_path: Path
) -> None:
    back_up(url, tmp_path / "backup")
    with closing(sqlite3.connect(home.database)) as connection:
        waiting = connection.execute("SELECT * FROM jobs WHERE name = 'waiting'").fetchone()
        later = ("job-later", "later", *waiting[2:])
        connection.execute(f"INSERT INTO jobs VALUES ({','.join('?' * len(later))})", later)
        connection.commit()
    with pytest.raises(Conflict, match=r"1 of the jobs and sessions .* \(later\).*--discard-later"):
        restore(url, tmp_path / "backup")
    assert "later" in names(home.database)
    restore(url, tmp_path / "backup", discard_later=True)
    assert "later" not in names(home.database)


def test_restore_under_a_running_controller_is_refused(
    home: Home, url: str, tmp_path: Path
) -> None:
    back_up(url, tmp_path / "backup")
    with home.locked(), pytest.raises(Conflict, match="muster down"):
        restore(url, tmp_path / "backup")


def test_controller_of_before_a_restore_can_write_no_more(
    home: Home, url: str, tmp_path: Path, postgresql: Server
) -> None:
    target = postgresql.url(postgresql.empty_database())
    copy(home, str(home.database), target)
    back_up(target, tmp_path / "backup")
    former = Store(open_engine(target), cluster_entities())
    restore(target, tmp_path / "backup")  # nobody holds the lock that a controller has
    work = former.unit(2e9, Watch())
    work.also(delete(schema.submissions))
    with pytest.raises(Superseded, match="muster db"):
        former.commit(work)
    former.close()


def test_backup_of_an_older_version_is_restored_and_migrated(home: Home, tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    engine = create_engine(sqlite_url(old))
    with engine.begin() as connection:
        migrate(connection, "0005")
        connection.exec_driver_sql(
            "INSERT INTO tokens VALUES ('abcdef0123456789x', 'user', 'laptop', 'default',"
            " 'default', 'ada', 'admin', 1.0)"
        )
    engine.dispose()
    made = back_up(sqlite_url(old), tmp_path / "backup")
    assert made.rows == 1
    restore(sqlite_url(home.database), tmp_path / "backup", discard_later=True)
    with closing(sqlite3.connect(home.database)) as connection:
        assert connection.execute("SELECT name FROM users").fetchall() == [("ada",)]


def test_copy_of_a_database_file_is_a_backup_too(home: Home, url: str, tmp_path: Path) -> None:
    copy_file(home.database, tmp_path / "copy.db")
    restore(url, tmp_path / "copy.db")
    assert is_sound(url)


# -- what is no backup ---------------------------------------------------------------------------


def cut(share: float) -> Callable[[bytes], bytes]:
    return lambda whole: whole[: int(len(whole) * share)]


def flipped(share: float) -> Callable[[bytes], bytes]:
    def spoil(whole: bytes) -> bytes:
        at = int(len(whole) * share)
        return whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]

    return spoil


def rewritten(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """Packed again, so that only what it says of itself tells."""

    def spoil(whole: bytes) -> bytes:
        text = gzip.decompress(whole)
        assert old in text
        return gzip.compress(text.replace(old, new, 1))

    return spoil


SPOILT: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    **{f"cut at {share:.0%}": (cut(share), "is not whole|damaged") for share in (0.1, 0.5, 0.99)},
    "cut within its checksum": (lambda whole: whole[:-4], "is not whole: it was cut off"),
    "twice": (lambda whole: whole * 2, "is damaged: it goes on after its last line"),
    "empty": (cut(0.0), "is no backup of Muster's"),
    **{f"flipped at {share:.0%}": (flipped(share), "damaged") for share in (0.3, 0.6, 0.95)},
    "text": (lambda _: b"nothing of the kind", "is no backup of Muster's"),
    "other lines": (lambda _: gzip.compress(b'{"a": 1}\n'), "is no backup of Muster's"),
    "zeros": (lambda _: gzip.compress(bytes(100_000)), "is no backup of Muster's"),
    "another row": (rewritten(b'"done"', b'"gone"'), "is damaged: the rows of jobs differ"),
    "a table less": (
        lambda whole: gzip.compress(without_last_table(gzip.decompress(whole))),
        "is damaged: its last line is another's",
    ),
    "a table without columns": (
        rewritten(b'"columns": [', b'"cells": ['),
        "is damaged: it has a table without columns",
    ),
    "without an end": (rewritten(b'"all_rows"', b'"some_rows"'), "is damaged: its last line"),
    "of a newer format": (rewritten(b'"muster_dump": 1', b'"muster_dump": 2'), "newer version"),
    "of a newer migration": (
        rewritten(b'"migration": "0', b'"migration": "9'),
        "made by a newer version of Muster",
    ),
}


def without_last_table(text: bytes) -> bytes:
    whole = text.splitlines(keepends=True)
    last = max(at for at, line in enumerate(whole) if line.startswith(b'{"table"'))
    return b"".join([*whole[:last], whole[-1]])


@pytest.mark.parametrize("how", SPOILT)
def test_spoilt_backup_is_refused_and_nothing_is_changed(
    how: str, home: Home, url: str, tmp_path: Path
) -> None:
    spoil, told = SPOILT[how]
    file = tmp_path / "backup"
    back_up(url, file)
    file.write_bytes(spoil(file.read_bytes()))
    before = home.database.read_bytes()
    with pytest.raises(MusterError, match=told):
        restore(url, file)
    with pytest.raises(MusterError, match=told):
        restore(sqlite_url(tmp_path / "new.db"), file)
    assert home.database.read_bytes() == before
    assert not list(home.path.glob("*before*"))
    assert not (tmp_path / "new.db").exists()


def test_databases_that_are_no_backup_are_refused(home: Home, url: str, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    with closing(sqlite3.connect(stranger)) as connection:
        connection.execute("CREATE TABLE t (x)")
    newer, short = tmp_path / "newer", tmp_path / "short"
    copy_file(home.database, newer)
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    copy_file(home.database, short)
    os.truncate(short, short.stat().st_size // 2)
    before = home.database.read_bytes()
    for file, told in (
        (tmp_path / "none", "cannot read .*No such file"),
        (tmp_path, "cannot read .*Is a directory"),
        (stranger, "is another program's"),
        (newer, "newer version of Muster"),
        (short, "malformed|damaged"),
    ):
        with pytest.raises(MusterError, match=told):
            restore(url, file)
    assert home.database.read_bytes() == before
    with pytest.raises(MusterError, match="there is no database"):
        back_up(sqlite_url(tmp_path / "nothing.db"), tmp_path / "backup")


def test_full_disk_leaves_neither_a_half_backup_nor_a_half_database(
    home: Home, url: str, tmp_path: Path, small_disk: Path
) -> None:
    back_up(url, tmp_path / "backup")
    (small_disk / "filler").write_bytes(bytes(shutil.disk_usage(small_disk).free - 2048))
    with pytest.raises(MusterError, match="No space left on device"):
        back_up(url, small_disk / "backup")
    with pytest.raises(MusterError, match=r"disk is full|No space left"):
        restore(sqlite_url(small_disk / "new.db"), tmp_path / "backup")
    assert {path.name for path in small_disk.iterdir()} == {"filler", "new.db.lock"}
