"""A cluster's state copied while it runs, and put back."""

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from tests.e2e.cluster import client_of

from muster.app.backup import back_up, restore
from muster.app.home import Home
from muster.app.local import UpOptions, down, up
from muster.core.errors import Conflict, MusterError
from muster.store.database import open_engine, sqlite_url


def test_backup_of_a_running_cluster_has_all_that_was_accepted_and_comes_back(
    home: Home, tmp_path: Path
) -> None:
    up(UpOptions(home.path, agents=1))
    file = tmp_path / "copy"
    with client_of(home) as cluster:
        before = cluster.submit(command="true", name="before")
        made = back_up(file, home.path)
        cluster.submit(command="true", name="after")
        with pytest.raises(Conflict, match="muster down"):
            restore(file, home.path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "home"]
    with pytest.raises(MusterError, match="is there already"):
        back_up(file, home.path)
    down(home.path)
    restored = restore(file, home.path)
    assert made.size_bytes == restored.size_bytes
    assert restored.kept_aside is not None
    with closing(sqlite3.connect(restored.kept_aside)) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM jobs")}
    assert names == {"before", "after"}
    up(UpOptions(home.path))
    with client_of(home) as cluster:
        assert [job.name for job in cluster.jobs("all")] == ["before"]
        assert cluster.wait(before.id, 30.0).state == "SUCCEEDED"


def a_database(path: Path, *statements: str) -> Path:
    """A whole, empty one of this version, changed by these."""
    open_engine(sqlite_url(path)).dispose()
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


def test_what_is_no_backup_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    a_database(home.database)
    kept = home.database.read_bytes()
    text = tmp_path / "text"
    text.write_text("no database")
    stranger = tmp_path / "stranger"
    with closing(sqlite3.connect(stranger)) as connection:
        connection.execute("CREATE TABLE t (x)")
    newer = a_database(tmp_path / "newer", "UPDATE alembic_version SET version_num = '9999'")
    cut = a_database(tmp_path / "cut")
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    for file, told in (
        (tmp_path / "none", "does not exist"),
        (text, "is no copy of a Muster database"),
        (stranger, "is no copy of a Muster database"),
        (newer, "was written by a newer version of Muster"),
        (cut, "damaged|no copy"),
    ):
        with pytest.raises(MusterError, match=told):
            restore(file, home.path)
    assert home.database.read_bytes() == kept
    assert not list(home.path.glob("*before*"))
    with pytest.raises(MusterError, match="nothing to back up"):
        back_up(tmp_path / "copy", tmp_path / "nothing")
