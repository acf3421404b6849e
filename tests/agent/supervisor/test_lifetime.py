"""One supervisor a directory, apart from the agent, lean, and gone when nobody needs it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agent.supervisor.driver import Driver, read_when_there, wait_gone

from muster.agent.supervisor import __main__ as script
from muster.agent.supervisor.launch import connect, launch
from muster.agent.supervisor.lock_file import is_held
from muster.agent.supervisor.protocol import SOCKET_NAME
from muster.agent.supervisor.shutdown import LOCK_NAME, shut_down


def test_launch_finds_the_supervisor_that_runs(supervisor: Driver) -> None:
    launch(supervisor.directory)

    first = supervisor.pid
    supervisor.attach()
    assert supervisor.pid == first


def test_second_supervisor_on_a_directory_leaves_cleanly(supervisor: Driver) -> None:
    second = subprocess.run(
        [sys.executable, "-I", "-S", str(script.__file__), "--dir", str(supervisor.directory)],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert second.returncode == 0
    assert "another supervisor has this folder" in second.stderr
    assert supervisor.run(["true"])["exit_code"] == 0


def test_launch_returns_no_earlier_than_the_lock_is_taken(tmp_path: Path) -> None:
    """Else one that is slow to come up could begin when the supervisor of its time has ended."""
    directory = tmp_path / "supervisor"
    try:
        for _ in range(5):
            launched = [sys.executable, "-I", "-S", str(script.__file__)]
            subprocess.run([*launched, "--detach", "--dir", str(directory)], timeout=20, check=True)
            assert is_held(directory / LOCK_NAME)
            shut_down(directory, grace_s=0.0, timeout_s=20.0)
            assert not is_held(directory / LOCK_NAME)
    finally:
        shut_down(directory, grace_s=0.0, timeout_s=20.0)


_OF_THE_SYSTEM = ("proc", "sys")  # its cgroups among them


def test_supervisor_is_detached_from_whoever_launched_it(supervisor: Driver) -> None:
    stat = Path(f"/proc/{supervisor.pid}/stat").read_text()
    _state, _parent, group, session = stat[stat.rindex(")") + 2 :].split()[:4]

    assert group == session == str(supervisor.pid)
    open_files = {path.readlink() for path in Path(f"/proc/{supervisor.pid}/fd").iterdir()}
    files = {
        path for path in open_files if path.is_absolute() and path.parts[1] not in _OF_THE_SYSTEM
    }
    assert files <= {
        Path("/dev/null"),
        supervisor.directory,
        *supervisor.directory.iterdir(),
    }


def test_supervisor_holds_nothing_open_that_its_launcher_had(tmp_path: Path) -> None:
    """A pipeline that an agent runs in must end with it."""
    read_fd, write_fd = os.pipe()
    os.set_inheritable(write_fd, True)
    driver = Driver(tmp_path / "supervisor")
    try:
        os.close(write_fd)
        os.set_blocking(read_fd, False)
        assert os.read(read_fd, 1) == b""
    finally:
        os.close(read_fd)
        driver.close()


def test_folder_and_socket_are_private(supervisor: Driver) -> None:
    assert supervisor.directory.stat().st_mode & 0o777 == 0o700
    assert (supervisor.directory / "supervisor.sock").stat().st_mode & 0o777 == 0o600


def test_supervisor_stays_small(supervisor: Driver) -> None:
    names = [f"k{number}" for number in range(100)]
    supervisor.start(*names)
    supervisor.until(lambda: len(supervisor.events) == 200)

    status = Path(f"/proc/{supervisor.pid}/status").read_text()
    resident_kib = int(status.split("VmRSS:")[1].split()[0])
    assert resident_kib < 20_000


def test_path_of_any_length_will_do(tmp_path: Path) -> None:
    driver = Driver(tmp_path / ("long" * 50) / "supervisor")
    try:
        assert driver.run(["true"])["exit_code"] == 0
    finally:
        driver.close()


def test_supervisor_that_is_alone_exits_when_its_lease_is_over(supervisor: Driver) -> None:
    supervisor.run(["true"])
    supervisor.lease(0.2)
    supervisor.settle()
    supervisor.detach()
    supervisor.batches.clear()

    wait_gone(supervisor.pid)

    with pytest.raises(FileNotFoundError):
        connect(supervisor.directory)
    launch(supervisor.directory)
    supervisor.attach()
    supervisor.until(lambda: bool(supervisor.batches))
    told = [event["kind"] for batch in supervisor.batches for event in batch]
    assert told == ["started", "ended"], "the next tells what nobody has acknowledged"


def test_supervisor_that_is_alone_stays_while_a_kernel_runs(
    supervisor: Driver, tmp_path: Path
) -> None:
    look = f"trap '' TERM; echo up; sleep 0.3; kill -0 $PPID && echo still there > {tmp_path}/seen"
    supervisor.start("k", command=["sh", "-c", look], grace_s=600)
    read_when_there(supervisor.log_path("k"))
    supervisor.lease(0.1)
    supervisor.settle()
    supervisor.detach()

    wait_gone(supervisor.pid)
    assert (tmp_path / "seen").read_text() == "still there\n"


def test_launch_that_fails_shows_the_log(tmp_path: Path) -> None:
    (tmp_path / "supervisor" / "journal").mkdir(parents=True)

    with pytest.raises(TimeoutError, match="IsADirectoryError"):
        launch(tmp_path / "supervisor", timeout_s=2.0)  # it is told at the end of it


def test_shut_down_of_a_dead_supervisor_waits_for_its_successor_no_longer_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "journal").mkdir()  # no supervisor can start on it
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(SOCKET_NAME)

    with pytest.raises(TimeoutError, match=r"did not start within 0\.\d+ s"):
        shut_down(tmp_path, grace_s=0.1, timeout_s=0.5)
