"""`muster doctor` judges a home."""

import json
import os
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.client.authority import served

from muster.agent.health.check import HealthCheck
from muster.agent.identity import locked
from muster.agent.trouble import Trouble
from muster.app.doctor import Check, checks
from muster.app.home import Home, RunningController
from muster.app.keeper import KeeperRecord


def test_controller_that_died_is_named_with_what_to_do(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.write_running(
        RunningController(4242, "http://127.0.0.1:7600", "127.0.0.1:7601", "1.0", 0.0)
    )
    check = _of_controller(home)
    assert (check.ok, check.detail) == (False, "died (process 4242, http://127.0.0.1:7600)")
    assert check.remedy == "run `muster up` again: nothing is lost"


@pytest.mark.parametrize(
    ("answer", "ok", "said"),
    [
        (b'{"status": "ok", "version": "1"}', True, "(process "),
        (b'{"status": "degraded", "version": "1", "reason": "the disk is full"}', False, "is full"),
        (
            b'{"status": "degraded", "version": "1", "reason": "ask an admin",'
            b' "id": "x", "now": 0, "trouble": "the disk is full"}',  # both answers in one
            False,
            "degraded: the disk is full",
        ),
        (b"<html>hello</html>", False, "is not a Muster controller"),
    ],
)
def test_controller_is_well_only_by_its_own_word(
    answer: bytes, ok: bool, said: str, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    with home.locked(), served(answer) as port:
        url = f"http://127.0.0.1:{port}"
        home.write_running(RunningController(os.getpid(), url, "127.0.0.1:7601", "1.0", 0.0))
        check = _of_controller(home)
    assert check.ok is ok
    assert said in check.detail
    assert "changes are refused" not in check.detail, "the controller itself says so where it is so"


@pytest.mark.parametrize(("ago_s", "ok"), [(5.0, False), (3600.0, None)])
def test_crash_is_a_fault_only_until_the_controller_has_been_well_for_a_while(
    ago_s: float, ok: bool | None, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    kept = KeeperRecord(os.getpid(), 1, "signal 9", time.time() - ago_s)
    (tmp_path / "keeper.json").write_text(json.dumps(asdict(kept)))
    with home.locked(), served(b'{"status": "ok", "version": "1"}') as port:
        url = f"http://127.0.0.1:{port}"
        home.write_running(RunningController(os.getpid(), url, "127.0.0.1:7601", "1.0", 0.0))
        check = _of_controller(home)
    assert check.ok is ok
    assert "crashed 1 time, last with signal 9 " in check.detail


AHEAD = "the time of day is 2h00m ahead of the cluster's time"
BEHIND = "the time of day is 1m00s behind the cluster's time"
SLEPT = "the machine was suspended for 8h00m"


@pytest.mark.parametrize(
    ("leap_s", "suspended_s", "said"),
    [
        (0.4, 0.0, []),
        (7200.0, 0.0, [AHEAD]),
        (-60.0, 0.0, [BEHIND]),
        (28_800.4, 28_800.0, [SLEPT]),
        (28_740.0, 28_800.0, [SLEPT, BEHIND]),
        (2.0, 2.0, []),
    ],
)
def test_time_of_day_that_is_not_the_clusters_is_told(
    leap_s: float, suspended_s: float, said: list[str], tmp_path: Path
) -> None:
    answer = (
        b'{"status": "ok", "version": "1", "id": "x", "now": 0, "clock_leap_s": %.1f, '
        b'"clock_suspended_s": %.1f}' % (leap_s, suspended_s)
    )
    home = Home(tmp_path)
    with home.locked(), served(answer) as port:
        url = f"http://127.0.0.1:{port}"
        home.write_running(RunningController(os.getpid(), url, "127.0.0.1:7601", "1.0", 0.0))
        found = [check for check in checks(home.path) if check.name == "clock"]
    assert [check.detail.partition(",")[0] for check in found] == said
    assert all(check.ok is False for check in found)


def test_time_that_nobody_has_confirmed_is_told(tmp_path: Path) -> None:
    answer = (
        b'{"status": "ok", "version": "1", "id": "x", "now": 0, "clock_leap_s": 3600.0, '
        b'"clock_confirmed": false}'
    )
    home = Home(tmp_path)
    with home.locked(), served(answer) as port:
        url = f"http://127.0.0.1:{port}"
        home.write_running(RunningController(os.getpid(), url, "127.0.0.1:7601", "1.0", 0.0))
        (check,) = [each for each in checks(home.path) if each.name == "clock"]
    assert check.ok is False
    assert check.detail.startswith("the time of day is 1h00m ahead of the cluster's time")
    assert "no agent has confirmed how much time has passed" in check.detail


def test_controller_that_is_there_and_does_not_answer_is_not_to_be_started(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with home.locked():
        home.write_running(
            RunningController(4242, "http://127.0.0.1:9", "127.0.0.1:7601", "1.0", 0.0)
        )
        check = _of_controller(home)
    assert check.ok is False
    assert check.detail.endswith(
        "; does not answer: it starts, or waits for its database, or hangs"
    )


@pytest.mark.parametrize(
    ("uid", "said"), [(0, "each user with a uid of its own"), (1000, "whoever may submit work")]
)
def test_whose_account_kernels_have_is_said_plainly(
    uid: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getuid", lambda: uid)
    (told,) = [check for check in checks(tmp_path) if said in check.detail]
    assert bool(told.ok) is (uid == 0)


def test_agent_that_cannot_work_is_told_with_its_own_words(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()
    directory = home.agent_directory("agent-1")
    directory.mkdir(parents=True)
    with locked(directory):
        assert _of_agent(home) == Check("agent agent-1", True, f"process {os.getpid()}")
        Trouble(directory).tell("its supervisor is of another version: wait")
        check = _of_agent(home)
    assert check.ok is False
    assert check.detail.endswith("; its supervisor is of another version: wait")


def _of_agent(home: Home) -> Check:
    (check,) = [check for check in checks(home.path) if check.name.startswith("agent ")]
    return check


def _of_controller(home: Home) -> Check:
    (check,) = [check for check in checks(home.path) if check.name == "controller"]
    return check


def test_health_checks_that_apply_to_this_machine_are_told(tmp_path: Path) -> None:
    (told,) = [check for check in checks(tmp_path) if check.name == "health checks"]
    assert told.ok is not False
    assert "disk" in told.detail.split(", ")


def test_health_check_that_cannot_be_loaded_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(name: str) -> type[HealthCheck]:
        raise ImportError("no module named fans")

    monkeypatch.setattr("muster.app.doctor.check_class", broken)
    (told,) = [check for check in checks(tmp_path) if check.name == "health checks"]
    assert (told.ok, told.remedy) == (False, "mend the plug-in, or remove it")
    assert told.detail.endswith(": no module named fans")
