"""A directory that somebody else has prepared opens no door: nothing outside of it is written, and
no process is ended, through what was put into it."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.patience import until

from muster.agent.supervisor import lock_file
from muster.app.database import held_file
from muster.app.doctor import checks
from muster.app.ended_agent import end_agent
from muster.app.home import Home, RunningController, UnusableHome, open_log
from muster.app.local import UpOptions, down, up
from muster.app.maintenance.files import unfinished
from muster.cli.program import app
from muster.client.connection import find_connection
from muster.client.errors import NoConnection
from muster.core.errors import MusterError
from muster.files import NotOwn, check_own

MALLORY = 4242
PRECIOUS = "what root wants to keep\n"

of_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can make others' directories")

HOLD = """
import fcntl, sys, time
file = open(sys.argv[1], "r+")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file of root's, outside of the prepared directory."""
    file = tmp_path / "precious"
    file.write_text(PRECIOUS)
    return file


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is nothing of the cluster's."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def prepared(place: Path, precious: Path, victim: int) -> Home:
    """A home of Mallory's, with links for each file that is written there, and a process id in each
    that tells one."""
    home = Home(place / "home")
    agent = home.path / "agents" / "agent-1"
    agent.mkdir(parents=True)
    for name in ("controller.log", "keeper.json", "muster.db", "ca.key"):
        (home.path / name).symlink_to(precious)
    running = RunningController(victim, "http://127.0.0.1:1", "127.0.0.1:2", "1", 0.0)
    home.write_running(running)
    for lock in (home.path / "lock", home.path / "keeper.lock", agent / "agent.lock"):
        lock.write_text(str(victim))
    for path in (home.path, *home.path.rglob("*")):
        os.chown(path, MALLORY, MALLORY, follow_symlinks=False)
    return home


@contextmanager
def held(*locks: Path) -> Iterator[None]:
    """Another process has the locks of these files, and leaves what they say as it is."""
    holders = []
    try:
        for lock in locks:
            words = [sys.executable, "-I", "-S", "-c", HOLD, str(lock)]
            holder = subprocess.Popen(words, stdout=subprocess.PIPE)
            holders.append(holder)
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
        yield
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()


@of_root
@pytest.mark.parametrize(
    "command",
    [
        ["up", "--agents", "0"],
        ["down"],
        ["controller"],
        ["controller", "--tls-self-signed"],
        ["proxy"],
        ["db", "check"],
        ["db", "backup", "made"],
        ["db", "migrate"],
        ["service", "install", "controller"],
    ],
    ids=" ".join,
)
def test_no_command_takes_a_home_that_belongs_to_somebody_else(
    tmp_path: Path,
    precious: Path,
    victim: subprocess.Popen[bytes],
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = prepared(tmp_path, precious, victim.pid)
    monkeypatch.chdir(tmp_path)
    locks = (home.path / "lock", home.path / "keeper.lock", home.path / "agents/agent-1/agent.lock")
    with held(*locks):
        said = CliRunner().invoke(app, ["--home", str(home.path), *command])

    assert said.exit_code != 0
    assert f"cannot use {home.path} as data directory: it belongs to another user" in said.stderr
    assert "run this as that user" in said.stderr
    assert precious.read_text() == PRECIOUS
    assert victim.poll() is None
    assert not (tmp_path / "made").exists()


@of_root
def test_end_of_an_agent_that_somebody_else_prepared_is_refused(
    tmp_path: Path, precious: Path, victim: subprocess.Popen[bytes]
) -> None:
    home = prepared(tmp_path, precious, victim.pid)
    agent = home.agent_directory("agent-1")
    with held(agent / "agent.lock"), pytest.raises(MusterError, match="another user"):
        end_agent(agent, wipe=True)

    assert victim.poll() is None
    assert agent.is_dir()


@of_root
def test_doctor_tells_of_a_prepared_home_and_believes_nothing_in_it(
    tmp_path: Path, precious: Path, victim: subprocess.Popen[bytes]
) -> None:
    home = prepared(tmp_path, precious, victim.pid)
    told = {each.name: each for each in checks(home.path)}

    assert "belongs to another user" in told["data directory"].detail
    assert not told["data directory"].ok
    assert "controller" not in told


@of_root
def test_token_that_somebody_else_put_there_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home")
    home.create()
    home.write_client("http://127.0.0.1:7600", "a-token", None)
    monkeypatch.setenv("MUSTER_HOME", str(home.path))
    assert find_connection(None, None).token == "a-token"
    os.chown(home.client_file, MALLORY, MALLORY)

    with pytest.raises(NoConnection, match=r"belongs to another user \(uid 4242\)"):
        find_connection(None, None)


@of_root
@pytest.mark.parametrize("by", ["directory", "link"])
def test_directory_that_somebody_may_replace_is_refused(tmp_path: Path, by: str) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "home").mkdir(parents=True, mode=0o700)
    named = theirs / "home"
    if by == "link":
        (tmp_path / "way").symlink_to(theirs)
        os.chown(tmp_path / "way", MALLORY, MALLORY, follow_symlinks=False)
        named = tmp_path / "way" / "home"
    else:
        os.chown(theirs, MALLORY, MALLORY)

    with pytest.raises(NotOwn, match="who may put another in its place"):
        check_own(named)


@of_root
def test_link_of_ones_own_that_leads_through_anothers_directory_is_refused(tmp_path: Path) -> None:
    theirs, target = tmp_path / "theirs", tmp_path / "target"
    theirs.mkdir()
    (target / "home").mkdir(parents=True, mode=0o700)
    (theirs / "on").symlink_to("../target")
    os.chown(theirs, MALLORY, MALLORY)
    (tmp_path / "way").symlink_to("theirs/on")

    with pytest.raises(NotOwn, match="belongs to another user"):
        check_own(tmp_path / "way" / "home")


@of_root
@pytest.mark.parametrize("name", ["state.db", "muster.db"])
def test_database_in_a_directory_of_somebody_else_is_not_opened(
    tmp_path: Path, precious: Path, name: str
) -> None:
    """SQLite would write its log through the link."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / f"{name}-wal").symlink_to(precious)
    os.chown(theirs, MALLORY, MALLORY)

    with pytest.raises(MusterError, match="another user"), held_file(theirs / name):
        pass
    assert [each.name for each in theirs.iterdir()] == [f"{name}-wal"]


@of_root
def test_nothing_is_made_in_a_directory_of_somebody_else(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, MALLORY, MALLORY)

    with pytest.raises(UnusableHome, match="who may put another in its place"):
        Home(theirs / "new").create()
    assert [*theirs.iterdir()] == []


@of_root
def test_directory_above_that_a_group_may_write_is_refused_for_root(tmp_path: Path) -> None:
    (tmp_path / "place" / "home").mkdir(parents=True, mode=0o700)
    (tmp_path / "place").chmod(0o775)

    with pytest.raises(NotOwn, match="a group may put another in its place"):
        check_own(tmp_path / "place" / "home")


def test_links_of_ones_own_on_the_way_are_followed(tmp_path: Path) -> None:
    (tmp_path / "there" / "home").mkdir(parents=True, mode=0o700)
    (tmp_path / "way").symlink_to("there/../there")

    check_own(tmp_path / "way" / "home")


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    with pytest.raises(OSError, match="symbolic links"):
        check_own(tmp_path / "a" / "home")


@pytest.mark.parametrize("how", ["link", "open to others"])
def test_home_that_is_a_link_or_that_others_may_write_is_refused(tmp_path: Path, how: str) -> None:
    home = Home(tmp_path / "home")
    if how == "link":
        (tmp_path / "there").mkdir(mode=0o700)
        home.path.symlink_to("there")
    else:
        home.path.mkdir()
        home.path.chmod(0o777)

    with pytest.raises(UnusableHome, match=r"symbolic link|others may write there"):
        up(UpOptions(home.path, agents=0))


# -- processes -------------------------------------------------------------------------------------


def test_down_ends_no_process_that_a_record_names_and_that_does_not_hold_the_lock(
    tmp_path: Path, victim: subprocess.Popen[bytes]
) -> None:
    """A controller that was killed leaves its number, which the system gives to another process
    while a command of `muster db` holds the home."""
    home = Home(tmp_path / "home")
    home.create()
    home.write_running(RunningController(victim.pid, "http://127.0.0.1:1", "127.0.0.1:2", "1", 0.0))
    lock = home.path / "lock"
    lock.write_text(str(victim.pid))

    with held(lock), pytest.raises(MusterError, match="stop it there"):
        down(home.path, timeout_s=0.2)
    assert victim.poll() is None


def test_number_in_a_lock_counts_only_if_that_process_has_the_file_open(
    tmp_path: Path, victim: subprocess.Popen[bytes]
) -> None:
    lock = tmp_path / "lock"
    lock.write_text(str(victim.pid))
    with held(lock):
        assert lock_file.is_held(lock)
        assert lock_file.holder_of(lock) is None
        assert not lock_file.signal_holder(lock, 15)

    with lock.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        lock.write_text(str(os.getpid()))
        assert lock_file.holder_of(lock) == os.getpid()
        assert not lock_file.signal_holder(lock, 0, only=victim.pid)
        assert lock_file.signal_holder(lock, 0, only=os.getpid())
    assert victim.poll() is None


def test_holder_of_a_lock_gets_the_signal(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    words = [sys.executable, "-I", "-S", "-c", HOLD, str(lock)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        lock.write_text(str(holder.pid))
        assert lock_file.signal_holder(lock, 15)
        assert until(holder.poll) == -15


# -- files -----------------------------------------------------------------------------------------


def make_log(path: Path) -> None:
    open_log(path).close()


def make_lock(path: Path) -> None:
    os.close(lock_file.take(path))


def make_backup(path: Path) -> None:
    with unfinished(path.with_name(path.name.removeprefix(".").removesuffix(".unfinished"))):
        pass


@pytest.mark.parametrize("way", ["link", "second name", "pipe"])
@pytest.mark.parametrize("make", [make_log, make_lock, make_backup])
def test_file_that_is_a_link_a_pipe_or_has_a_second_name_is_not_written(
    tmp_path: Path, precious: Path, make: object, way: str
) -> None:
    place = tmp_path / ".file.unfinished"
    if way == "link":
        place.symlink_to(precious)
    elif way == "pipe":
        os.mkfifo(place)
    else:
        place.hardlink_to(precious)

    with pytest.raises((OSError, MusterError)):
        make(place)  # type: ignore[operator]
    assert precious.read_text() == PRECIOUS
    assert not lock_file.is_held(place)


def test_home_leaves_the_mode_of_a_file_elsewhere(tmp_path: Path, precious: Path) -> None:
    precious.chmod(0o644)
    home = Home(tmp_path / "home")
    home.create()
    (home.path / "notices.yaml").symlink_to(precious)
    home.create()

    assert precious.stat().st_mode & 0o777 == 0o644


def test_record_of_a_controller_is_no_proof(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    record = RunningController(os.getpid(), "http://127.0.0.1:1", "127.0.0.1:2", "1", 0.0)
    home.write_running(record)
    assert json.loads((home.path / "controller.json").read_text())["pid"] == os.getpid()
    assert home.terminate() is None
