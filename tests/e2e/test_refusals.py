"""Refusals of `muster up`: one sentence, an exit code that is not 0, and nothing damaged."""

import hashlib
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.e2e.cluster import Cluster, assert_no_survivors, free_ports, lines_told

from muster.app.home import Home
from muster.store.database import HEAD, open_engine, sqlite_url

MUSTER = Path(sys.executable).with_name("muster")


def up(home: Home, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(MUSTER), "up", "--home", str(home.path), "--agents", "0", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def assert_one_sentence(refused: subprocess.CompletedProcess[str]) -> str:
    """It was refused in so many words; the words."""
    assert refused.returncode == 1, refused
    assert refused.stdout == ""
    sentence = " ".join(" ".join(lines_told(refused.stderr)).split())
    assert sentence.startswith("muster: ")
    assert "Traceback" not in sentence
    assert len(sentence) < 400
    return sentence


def test_second_up_on_a_home_is_refused_and_the_first_runs_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "home")
    try:
        cluster.start_controller()
        pid = cluster.running().pid
        sentence = assert_one_sentence(up(cluster.home))
        assert "already runs" in sentence
        assert f"process {pid}" in sentence
        assert "muster down" in sentence
        with cluster.client() as client:
            assert client.health().status == "ok"
    finally:
        cluster.close()


def test_up_on_a_port_that_is_taken_is_refused_and_works_once_it_is_free(home: Home) -> None:
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        sentence = assert_one_sentence(up(home, "--port", str(port)))
        assert str(port) in sentence
        assert "--port" in sentence
        assert_no_survivors(home.path)
    assert up(home, "--port", str(port)).returncode == 0


def test_settings_of_notices_that_are_wrong_are_refused(home: Home) -> None:
    home.create()
    (home.path / "notices.yaml").write_text("schemes: [json, syslog]\n")
    sentence = assert_one_sentence(up(home))
    assert "notices.yaml: schemes is syslog" in sentence
    (home.path / "notices.yaml").unlink()
    assert up(home).returncode == 0


def test_database_of_a_newer_version_is_refused_and_left_as_it_is(home: Home) -> None:
    home.create()
    open_engine(sqlite_url(home.database)).dispose()
    set_version(home.database, "9999")
    before = digest(home.database)

    sentence = assert_one_sentence(up(home))
    assert "newer version" in sentence
    assert "9999" in sentence
    assert digest(home.database) == before

    set_version(home.database, HEAD)
    assert up(home).returncode == 0


def set_version(database: Path, version: str) -> None:
    # The last connection to be closed leaves all in the one file.
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (version,))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
