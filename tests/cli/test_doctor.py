"""`muster doctor` judges a home."""

import json
import os
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.client.authority import certificate, served

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


RUNNING = b'{"status": "ok", "version": "1", "id": "x", "now": 0%s}'


def _found(home: Home, name: str, more: bytes = b"", **running: Any) -> list[Check]:
    """The findings of this name about a home whose controller runs and answers."""
    with home.locked(), served(RUNNING % more) as port:
        url = f"http://127.0.0.1:{port}"
        told = RunningController(os.getpid(), url, "127.0.0.1:7601", "1.0", 0.0, **running)
        home.write_running(told)
        return [each for each in checks(home.path) if each.name.startswith(name)]


def test_controller_that_starts_no_proxy_is_well_without_one(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert [each.ok for each in _found(home, "proxy", proxy=True)] == [False]
    (alone,) = _found(home, "proxy", proxy=False)
    assert alone.ok is None
    assert "`muster service install proxy` does" in alone.detail


def test_balancer_that_does_not_follow_is_a_fault(tmp_path: Path) -> None:
    said = b', "balancers": {"haproxy": "/run/haproxy.sock is not reached", "etcd": ""}'
    dead, alive = _found(Home(tmp_path), "balancer", said)
    assert (dead.name, dead.ok) == ("balancer haproxy", False)
    assert dead.detail == "/run/haproxy.sock is not reached"
    assert (alive.name, alive.ok) == ("balancer etcd", True)


@pytest.mark.parametrize(
    ("agents", "ok", "detail"),
    [
        (b'{"ALIVE": 2, "LOST": 1}', True, "2 alive, 1 lost"),
        (b'{"UNREACHABLE": 3}', None, "3 unreachable"),
        (b"{}", None, "none has joined"),
    ],
)
def test_agents_that_run_elsewhere_are_counted(
    agents: bytes, ok: bool | None, detail: str, tmp_path: Path
) -> None:
    (found,) = _found(Home(tmp_path), "agents of the cluster", b', "agents": ' + agents)
    assert (found.ok, found.detail) == (ok, detail)


@pytest.mark.parametrize(
    ("name", "text", "ok"),
    [
        ("traffic.yaml", "hosts: [a.example.org]", True),
        ("traffic.yaml", "hosts: [", False),
        ("traffic.yaml", "host: a.example.org", False),
        ("notices.yaml", "schemes: [nope nope]", False),
        ("health.yaml", "reboot_command: [bin/reboot]", False),
        ("settings.json", "{", False),
    ],
)
def test_configuration_that_a_controller_would_refuse_is_a_fault(
    name: str, text: str, ok: bool, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    (tmp_path / name).write_text(text)
    (found,) = [each for each in checks(home.path) if each.name == name]
    assert found.ok is ok
    assert ok or name in found.detail


@pytest.mark.parametrize(("days", "ok"), [(0, True), (340, False), (400, False)])
def test_certificate_that_ends_soon_is_a_fault(days: int, ok: bool, tmp_path: Path) -> None:
    """That which the controller shows, wherever its file is."""
    home = Home(tmp_path / "home")
    home.create()
    tls = certificate(tmp_path / "authority", age=timedelta(days=days))
    home.write_client("", "token", tmp_path / "authority" / "ca.pem")
    with home.locked(), served(RUNNING % b"", tls) as port:
        url = f"https://localhost:{port}"
        home.write_running(RunningController(os.getpid(), url, "127.0.0.1:7601", "1.0", 0.0))
        found = [each for each in checks(home.path) if each.name.startswith("certificate")]
    (shown,) = found
    assert (shown.name, shown.ok) == ("certificate of the controller", ok)
    assert ("has ended on" in shown.detail) is (days == 400)


def test_authority_that_lacks_a_part_or_ends_soon_is_a_fault(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()

    def authority() -> list[bool | None]:
        return [each.ok for each in checks(home.path) if each.name == "authority"]

    assert authority() == []
    certificate(tmp_path)
    assert authority() == [True]
    (tmp_path / "ca.pem").unlink()
    assert authority() == [False]
    (tmp_path / "ca.key").unlink()
    certificate(tmp_path, age=timedelta(days=3600))
    assert authority() == [False]
