"""Uids that were given since a backup stay their users' when it is restored."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from muster.app.home import Home
from muster.app.maintenance.backup import back_up
from muster.app.maintenance.copying import copy
from muster.app.maintenance.restoring import restore
from muster.store.database import sqlite_url

ADA, BOB, CAROL = (300_000, "default", "ada"), (300_001, "default", "bob"), (300_002, "lab", "bob")


def execute(database: Path, statement: str, *parameters: object) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(database)) as connection, connection:
        return connection.execute(statement, parameters).fetchall()


def name(database: Path, cluster: str) -> None:
    execute(database, "DELETE FROM cluster WHERE key = 'id'")
    execute(database, "INSERT INTO cluster (key, value) VALUES ('id', ?)", cluster)


def give(database: Path, *given: tuple[int, str, str]) -> None:
    for row in given:
        execute(database, "INSERT INTO uids VALUES (?, ?, ?, 1.0)", *row)


def given(database: Path) -> list[tuple[object, ...]]:
    return execute(database, "SELECT uid, domain, user FROM uids ORDER BY uid")


@pytest.fixture
def backup(home: Home, tmp_path: Path) -> Path:
    """A backup from when one user had a uid."""
    name(home.database, "c1")
    give(home.database, ADA)
    file = tmp_path / "backup"
    back_up(sqlite_url(home.database), file)
    give(home.database, BOB, CAROL)
    return file


def test_users_keep_the_uids_that_they_were_given_since_the_backup(
    home: Home, backup: Path
) -> None:
    restore(sqlite_url(home.database), backup, discard_later=True)
    assert given(home.database) == [ADA, BOB, CAROL]
    restore(sqlite_url(home.database), backup, discard_later=True)
    assert given(home.database) == [ADA, BOB, CAROL]


def test_uids_of_another_cluster_are_not_those_of_the_restored_one(
    home: Home, backup: Path
) -> None:
    name(home.database, "c2")
    restore(sqlite_url(home.database), backup, discard_later=True)
    assert given(home.database) == [ADA]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_state_that_is_lost_keeps_no_backup_from_being_restored(
    home: Home, backup: Path, is_damaged: bool
) -> None:
    home.database.unlink()
    if is_damaged:
        home.database.write_bytes(b"\0" * 10_000)
    restore(sqlite_url(home.database), backup)
    assert given(home.database) == [ADA]


def test_copy_of_a_cluster_has_its_uids(home: Home, backup: Path, tmp_path: Path) -> None:
    copy(home, str(home.database), str(tmp_path / "copy.db"))
    assert given(tmp_path / "copy.db") == [ADA, BOB, CAROL]
