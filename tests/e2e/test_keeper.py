"""`muster up` keeps its controller alive; real processes, killed with -9."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from tests.e2e.cluster import client_of, free_ports, lines_told
from tests.patience import until

from muster.app import keeper, local
from muster.app.detached import has_ended, last_words
from muster.app.doctor import checks
from muster.app.home import Home, RunningController
from muster.app.keeper import keeper_of, last_kept
from muster.app.local import UpOptions, down, up
from muster.core.errors import Conflict, Hindered

MUSTER = Path(sys.executable).with_name("muster")


def running(home: Home) -> RunningController:
    found = home.running()
    assert found is not None
    return found


def controller_check(home: Home) -> str:
    return next(check.detail for check in checks(home.path) if check.name == "controller")


def test_controller_that_is_killed_with_running_work_is_back_without_a_person(home: Home) -> None:
    first = up(UpOptions(home.path, agents=1))
    with client_of(home) as cluster:
        job = cluster.submit(command="sleep 4; echo survived")
        until(lambda: cluster.job(job.id).state == "RUNNING")
        kernel = cluster.task(job.id, 0).kernel_id
        os.kill(first.pid, signal.SIGKILL)
        assert cluster.wait(job.id, 60.0).state == "SUCCEEDED"
        assert cluster.task(job.id, 0).kernel_id == kernel, "the same attempt"
        assert b"".join(cluster.logs(job.id)) == b"survived\n"
    assert running(home).pid != first.pid
    assert running(home).url == first.url
    assert "crashed 1 time, last with signal 9" in controller_check(home)
    log = home.log.read_text()
    assert "the controller ended with signal 9, again in 0.2 s" in log
    kept = keeper_of(home)
    assert kept is not None
    down(home.path)
    until(lambda: not psutil.pid_exists(kept) or has_ended(psutil.Process(kept)))
    assert not home.is_running()


def test_command_right_after_a_crash_waits_for_the_controller(home: Home) -> None:
    first = up(UpOptions(home.path, agents=0))
    os.kill(first.pid, signal.SIGKILL)
    env = {**os.environ, "MUSTER_HOME": str(home.path)}
    listed = subprocess.run([MUSTER, "ps"], env=env, capture_output=True, text=True, timeout=60)
    assert (listed.returncode, listed.stdout) == (0, "")
    assert running(home).pid != first.pid


def test_controller_that_comes_back_is_where_it_was_though_a_lower_port_is_free_now(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = free_ports(1)[0]
    monkeypatch.setattr(local, "DEFAULT_PORT", default)
    with socket.create_server(("127.0.0.1", default)):
        first = up(UpOptions(home.path, agents=0))
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: running(home).pid != first.pid)
    assert (running(home).url, running(home).agent_address) == (first.url, first.agent_address)


def test_controller_that_comes_back_waits_for_ports_that_others_have_taken(home: Home) -> None:
    first = up(UpOptions(home.path, agents=0))
    agent_port, port = (int(where.rpartition(":")[2]) for where in (first.agent_address, first.url))
    os.kill(first.pid, signal.SIGKILL)
    with until(partial(_another_at, port)):
        with until(partial(_another_at, agent_port)):
            until(partial(_is_said, home, f":{agent_port}: another program uses it"))
        until(partial(_is_said, home, f":{port}: another program uses it"))
        assert _another_at(agent_port) is None, "it is the controller's from the beginning"
    until(lambda: running(home).pid != first.pid)
    assert (running(home).url, running(home).agent_address) == (first.url, first.agent_address)
    kept = last_kept(home)
    assert kept is not None
    assert kept.crashes == 1


def test_controller_that_comes_back_waits_for_a_lock_of_somebody_else_on_its_database(
    home: Home,
) -> None:
    first = up(UpOptions(home.path, agents=0))
    with closing(sqlite3.connect(home.database, isolation_level=None)) as other:
        until(partial(_is_locked, other))
        os.kill(first.pid, signal.SIGKILL)
        until(lambda: "database is locked" in controller_check(home))
        other.execute("ROLLBACK")
    until(lambda: running(home).pid != first.pid)
    kept = last_kept(home)
    assert kept is not None
    assert kept.crashes == 1
    assert "database is locked" not in controller_check(home)


def test_controller_that_comes_back_waits_for_a_command_that_holds_its_home(home: Home) -> None:
    first = up(UpOptions(home.path, agents=0))
    os.kill(first.pid, signal.SIGKILL)
    with until(partial(_held, home)) as holding:
        until(lambda: f"process {os.getpid()} holds {home.path}" in controller_check(home))
        holding.close()
    until(lambda: running(home).pid != first.pid)
    kept = last_kept(home)
    assert kept is not None
    assert kept.crashes == 1


def _held(home: Home) -> ExitStack | None:
    """The lock of the home, as a command of `muster db` has it, if it can be had."""
    with ExitStack() as holding, suppress(Conflict):
        holding.enter_context(home.locked())
        return holding.pop_all()
    return None


def _is_locked(connection: sqlite3.Connection) -> bool:
    """Whether the connection has the lock of its database, for which it does not wait long."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return False
    return True


def _another_at(port: int) -> socket.socket | None:
    """Another program's socket at a port, if it can be had."""
    with suppress(OSError):
        return socket.create_server(("127.0.0.1", port))
    return None


def _is_said(home: Home, words: str) -> bool:
    return words in home.log.read_text()


def test_controller_that_is_told_to_end_is_not_started_again(home: Home) -> None:
    report = up(UpOptions(home.path, agents=0))
    kept = keeper_of(home)
    assert kept is not None
    processes = [psutil.Process(pid) for pid in (kept, report.pid)]
    os.kill(report.pid, signal.SIGTERM)
    until(lambda: all(map(has_ended, processes)))
    assert last_kept(home) == keeper.KeeperRecord(kept)


def test_controller_whose_keeper_was_killed_runs_on_until_down(home: Home) -> None:
    report = up(UpOptions(home.path, agents=0))
    kept = keeper_of(home)
    assert kept is not None
    os.kill(kept, signal.SIGKILL)
    until(lambda: keeper_of(home) is None)
    assert "kept alive" not in controller_check(home)
    controller = psutil.Process(report.pid)
    assert not has_ended(controller)
    down(home.path)
    assert has_ended(controller)


@pytest.fixture
def stand_ins(home: Home, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The exit codes of stand-ins for controllers, which are ready and end; once the list is empty,
    they end with 7. The keeper itself is the real one."""
    script = (
        "import json, os, sys; home = json.load(sys.stdin)['home']; "
        "state = dict(pid=os.getpid(), url='http://127.0.0.1:1', agent_address='127.0.0.1:2', "
        "version='', started_at=0); "
        "open(home + '/controller.json', 'w').write(json.dumps(state)); "
        "import time; time.sleep(0.3); os._exit(int(sys.argv[1]))"
    )
    codes: list[int] = []
    popen = subprocess.Popen

    def start(words: list[str], **options: object) -> "subprocess.Popen[bytes]":
        code = str(codes.pop(0) if codes else 7)
        return popen([sys.executable, "-c", script, code], **options)  # type: ignore[call-overload,no-any-return]

    home.create()
    monkeypatch.setattr("muster.app.keeper.subprocess.Popen", start)
    monkeypatch.setattr(keeper, "MAX_CRASHES", 2)
    monkeypatch.setattr("muster.app.keeper.signal.signal", lambda *_: None)
    return codes


def test_controller_that_crashes_again_and_again_is_given_up(
    home: Home, stand_ins: list[int]
) -> None:
    stand_ins += [7, 7, 7, 0]
    assert keeper.keep(f'{{"home": "{home.path}"}}') == 1
    assert stand_ins == [0]
    kept = last_kept(home)
    assert kept is not None
    assert (kept.crashes, kept.last_end, kept.gave_up) == (3, "exit code 7", True)
    assert "given up" in controller_check(home)


def test_controller_that_something_outside_hinders_is_started_again_until_it_does_not(
    home: Home, stand_ins: list[int]
) -> None:
    stand_ins += [7, *[Hindered.exit_code] * 4, 0]
    assert keeper.keep(f'{{"home": "{home.path}"}}') == 0
    kept = last_kept(home)
    assert kept is not None
    assert (kept.crashes, kept.last_end) == (1, "a trouble that may pass")


def test_first_start_that_is_killed_is_told_with_its_reason(
    home: Home, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    popen = subprocess.Popen
    killed = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]

    def start(words: list[str], **options: object) -> "subprocess.Popen[bytes]":
        return popen(killed, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr("muster.app.keeper.subprocess.Popen", start)
    monkeypatch.setattr("muster.app.keeper.signal.signal", lambda *_: None)
    home.create()
    home.log.write_text("muster controller: what an earlier one said\n")
    began = home.log.stat().st_size
    assert keeper.keep(f'{{"home": "{home.path}"}}') == 1
    with home.log.open("a") as log:
        log.write(capfd.readouterr().err)
    assert last_words(home, began) == (
        "the controller was killed while it started (signal 9), for want of memory, or by somebody"
    )


def test_end_without_a_word_is_told_as_such(home: Home) -> None:
    home.create()
    home.log.write_text("muster controller: what an earlier one said\n")
    began = home.log.stat().st_size
    assert last_words(home, began) == f"the controller ended without a reason; see {home.log}"
    with home.log.open("a") as log:
        log.write("2026-11-28 INFO alembic: Running upgrade\n")
    assert last_words(home, began) == (
        "the controller ended without a reason, and last said: 2026-11-28 INFO alembic: Running "
        f"upgrade; see {home.log}"
    )


def test_slower_of_two_ups_says_that_the_other_was_faster(home: Home) -> None:
    words = [str(MUSTER), "up", "--agents", "0", "--home", str(home.path)]
    both = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=60) for process in both]
    assert sorted(process.returncode for process in both) == [0, 1]
    loser = next(index for index, process in enumerate(both) if process.returncode)
    out, error = said[loser]
    assert out == ""
    assert "another `muster up` was faster" in error or "a cluster already runs" in error
    assert len(lines_told(error)) == 1
    assert said[1 - loser][0].startswith("Muster runs at ")
    with pytest.raises(Conflict, match="already runs"):
        up(UpOptions(home.path))
