"""`muster db` as people call it: what it says, and its exit codes."""

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import text
from tests.databases import Server

from muster.app.doctor import checks
from muster.app.home import Home, RunningController, Settings
from muster.app.maintenance import checking
from muster.cli.program import app
from muster.store.audit.finding import Audit, AuditFinding, Stored
from muster.store.database import DatabaseUnusable, sqlite_url


def db(home: Home, *words: str) -> Result:
    return CliRunner().invoke(app, ["db", *words, "--home", str(home.path)])


def change(home: Home, statement: str) -> None:
    with closing(sqlite3.connect(home.database)) as connection:
        connection.execute(statement)
        connection.commit()


def test_check_of_a_sound_cluster_ends_with_0_and_names_what_holds(home: Home) -> None:
    result = db(home, "check")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "✓ the file is sound"
    assert all(line.startswith("✓ ") for line in lines)


def test_check_tells_each_row_that_differs_and_counts_the_others(home: Home) -> None:
    change(home, "UPDATE tasks SET attempt = 7 WHERE job_id IN (SELECT id FROM jobs LIMIT 1)")
    change(
        home,
        "INSERT INTO history WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
        " WHERE i < 30) SELECT 'ses-' || i, 1, 'x', 'PENDING', 'PENDING', 'SUCCESS', NULL, 1, 1.0,"
        " 1.0 FROM n",
    )
    result = db(home, "check")
    assert result.exit_code == 1
    assert "✗ each history is of something that is there: 30 differ" in result.stdout
    assert result.stdout.count("has a history, and is not there") == 20
    assert "  … and 10 more" in result.stdout
    result = db(home, "check", "--json")
    assert result.exit_code == 1
    differing = {each["title"]: each for each in json.loads(result.stdout) if each["found"]}
    assert differing["each history is of something that is there"]["found"] == 30
    assert len(differing["each history is of something that is there"]["first"]) == 20


def test_check_that_takes_long_says_how_long_it_has_been_at_work(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    is_said = threading.Event()

    def progress(title: str, took_s: float) -> None:
        said.append(title)
        is_said.set()

    def waits(stored: Stored) -> Iterator[AuditFinding]:
        assert is_said.wait(30.0)
        return iter(())

    monkeypatch.setattr(checking, "REPORT_S", 0.01)
    monkeypatch.setattr(checking, "_of_file", lambda connection: [Audit("it takes long", waits)])
    monkeypatch.setattr(checking, "cluster_audits", list)
    (audited,) = checking.check(sqlite_url(home.database), progress)
    assert (audited.title, audited.found) == ("it takes long", 0)
    assert set(said) == {"it takes long"}


def test_check_that_never_ends_is_broken_off(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT count(*) FROM n"

    def never_ends(stored: Stored) -> Iterator[AuditFinding]:
        stored.connection.execute(text(endless)).all()
        return iter(())

    monkeypatch.setattr(checking, "_of_file", lambda connection: [Audit("it ends", never_ends)])
    with pytest.raises(DatabaseUnusable, match="interrupted"):
        list(checking.check(sqlite_url(home.database), limit_s=0.2))


def test_check_that_cannot_be_made_ends_with_2(home: Home, tmp_path: Path) -> None:
    change(home, "UPDATE agents SET capacity = 'nonsense'")
    result = db(home, "check")
    assert result.exit_code == 2
    assert "✗ no agent is charged with more than it has: JSONDecodeError" in result.stdout
    result = db(home, "check", "--database", str(tmp_path / "none.db"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is no database" in result.stderr
    change(home, "UPDATE alembic_version SET version_num = '0012'")
    result = db(home, "check")
    assert result.exit_code == 2
    assert "run `muster db migrate` first" in result.stderr
    result = db(home, "migrate", "--dry-run")
    assert result.exit_code == 0
    assert " to run from migration 0012" in result.stdout


def test_database_that_was_named_to_the_controller_alone_is_not_mistaken(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MUSTER_DATABASE", raising=False)
    link = tmp_path / "link"
    link.symlink_to(home.path)
    controller = RunningController(1, "http://127.0.0.1:7600", "127.0.0.1:7601", "1", 0.0)
    for database in "", sqlite_url(home.database), sqlite_url(link / "muster.db"):
        with home.locked():
            home.write_running(replace(controller, database=database))
            assert db(home, "check").exit_code == 0
            assert "database" not in [each.name for each in checks(home.path)]
    elsewhere = "postgresql://ada@db/x"
    home.write_running(replace(controller, database=elsewhere))
    assert db(home, "check").exit_code == 0, "that one is gone"
    with home.locked():
        for words in ["check"], ["backup", str(tmp_path / "backup")], ["migrate"]:
            result = db(home, *words)
            assert result.exit_code != 0
            assert f"works on the database {elsewhere}, which was named to it" in result.stderr
        assert not (tmp_path / "backup").exists()
        assert db(home, "check", "--database", str(home.database)).exit_code == 0
        (told,) = [each for each in checks(home.path) if each.name == "database"]
        assert (told.ok, told.detail.partition(",")[0]) == (None, elsewhere)
        monkeypatch.setenv("MUSTER_DATABASE", str(home.database))
        assert db(home, "check").exit_code == 0
        monkeypatch.delenv("MUSTER_DATABASE")
        home.write_settings(Settings(database="postgresql://ada:secret@db/x"))
        assert [each.ok for each in checks(home.path) if each.name == "database"] == [False]


def test_backup_and_restore_say_what_they_did(home: Home, tmp_path: Path) -> None:
    result = db(home, "backup", str(tmp_path / "backup"))
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("backed up 158 rows to ")
    result = db(home, "restore", str(tmp_path / "backup"))
    assert result.exit_code == 1
    assert (
        "it is not known here which tokens were revoked after the backup was made" in result.stderr
    )
    result = db(home, "restore", "--keep-tokens", str(tmp_path / "backup"))
    assert result.exit_code == 0, result.output
    assert "what was there is " in result.stdout
    assert "agents stop the kernels that began later" in result.stdout
    result = db(home, "backup", str(tmp_path / "backup"))
    assert result.exit_code == 1
    assert "is there already: choose another name" in result.stderr


def test_copy_of_damaged_state_is_exact_and_warns(home: Home, tmp_path: Path) -> None:
    change(home, "UPDATE jobs SET finished_at = NULL")
    result = db(home, "copy", str(home.database), str(tmp_path / "new.db"))
    assert result.exit_code == 0, result.output
    assert "warning: " in result.stderr
    assert "`muster db check` tells more" in result.stderr


@pytest.mark.parametrize("words", ["check", "backup FILE", "migrate", "restore FILE"])
def test_wrong_password_is_told_without_the_password(
    words: str, home: Home, tmp_path: Path, postgresql: Server
) -> None:
    db(home, "backup", str(tmp_path / "there"))
    url = postgresql.tcp_url("postgres", "se-cret")
    file = str(tmp_path / ("there" if "restore" in words else "new"))
    result = db(home, *words.replace("FILE", file).split(), "--database", url)
    assert result.exit_code == (2 if words == "check" else 1)
    assert "password authentication failed" in result.stderr
    assert "look at the user and the password (PGPASSWORD, ~/.pgpass)" in result.stderr
    assert "se-cret" not in result.output
    warning, sentence = result.stderr.splitlines()
    assert warning.startswith("warning: others on this machine can see the password")
    assert sentence.startswith("muster: the database postgresql://muster:***@127.0.0.1")


@pytest.mark.parametrize("command", ["copy", "migrate", "restore"])
def test_work_without_a_controller_says_which_kernels_that_may_end(
    home: Home, tmp_path: Path, command: str
) -> None:
    assert db(home, "backup", str(tmp_path / "kept")).exit_code == 0
    change(home, "UPDATE agents SET lease_s = 9e999")  # as of the controller's own machine
    assert "leases" not in db(home, "migrate").stderr
    change(home, "UPDATE agents SET lease_s = 300")
    with closing(sqlite3.connect(home.database)) as connection:
        charged = "SELECT count(DISTINCT kernel_id) FROM allocations WHERE charged"
        (held,) = connection.execute(charged).fetchone()
    assert held > 1
    words = {
        "copy": [str(home.database), str(tmp_path / "copy.db")],
        "migrate": [],
        "restore": [str(tmp_path / "kept"), "--discard-later", "--keep-tokens"],
    }
    result = db(home, command, *words[command])
    assert result.exit_code == 0, result.output
    assert f"warning: {held} kernels on " in result.stderr
    assert "no controller has renewed their leases for 5m00s" in result.stderr
