"""The program of a service: what it checks, and when it resets or reboots its machine."""

from collections.abc import Callable
from pathlib import Path

import pytest

from muster.agent.health.machine_log import tell_machine
from muster.agent.health.own_machine import is_on_this_machine, reboot, reset
from muster.agent.health.request import ServiceRequest, dump_request, load_request
from muster.agent.health.running import Command
from muster.agent.health.serve import checked, keep_at, serve
from muster.core.health.check_run import CheckRun, Ending
from muster.core.health.service import Service, ServiceName, dump, load
from muster.core.health.verdict import CheckResult, Verdict
from muster.core.resources import Device

GPUS = (Device(0, "H100", "GPU-a"), Device(1, "H100"), Device(2, "H100", "GPU-c"))
HEALTHY = 'printf \'{"version": 1, "verdict": "healthy"}\''
FAULTY = 'printf \'{"version": 1, "verdict": "faulty", "findings": [{"what": "broken"}]}\''


def request(service: Service, **fields: object) -> ServiceRequest:
    return ServiceRequest(service=service, devices=GPUS, **fields)  # type: ignore[arg-type]


class Ran:
    """Commands that were run, all of which end alike."""

    def __init__(self, run: CheckRun) -> None:
        self.commands: list[tuple[str, ...]] = []
        self._run = run

    def __call__(self, command: Command, limit_s: float) -> CheckRun:
        assert limit_s > 0
        self.commands.append(command.arguments)
        return self._run


DONE = CheckRun(Ending.EXITED)


def programs(tmp_path: Path, **lines: str) -> dict[str, str]:
    """Checks that print what these lines do."""
    found = {}
    for name, line in lines.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
        found[name] = str(path)
    return found


def test_a_request_is_read_back_as_it_was() -> None:
    asked = request(Service(ServiceName.CHECK, (1,), why="x"), checks={"a": "b c"}, is_part=True)
    assert load_request(dump_request(asked)) == asked
    with pytest.raises(ValueError, match="no request"):
        load_request("{")


def test_a_verdict_is_of_all_checks_that_are_named(tmp_path: Path) -> None:
    kept: list[Verdict] = []
    checks = programs(tmp_path, good=HEALTHY, bad=FAULTY)
    service = Service(ServiceName.CHECK, checks=("good", "bad", "nonesuch"))
    verdict = checked(request(service, checks=checks), kept.append)

    assert verdict.result is CheckResult.FAULTY
    assert verdict.checks == ("good", "bad")
    assert [each.what for each in verdict.findings] == [
        "broken",
        "check nonesuch is not on this machine",
    ]
    # Whenever it is ended, a fault stays one, and nothing is healthy that was not looked at.
    assert [each.result for each in kept] == [
        CheckResult.UNKNOWN,
        CheckResult.UNKNOWN,
        CheckResult.FAULTY,
    ]


def test_a_check_that_the_machine_lacks_tells_nothing_of_it(tmp_path: Path) -> None:
    own = programs(tmp_path, good=HEALTHY)
    both = Service(ServiceName.CHECK, checks=("good", "nonesuch"))
    verdict = checked(request(both, checks=own), lambda verdict: None)
    assert verdict.result is CheckResult.HEALTHY
    assert "nonesuch is not on this machine" in verdict.sentence()

    lacked = Service(ServiceName.CHECK, checks=("nonesuch",))
    verdict = checked(request(lacked, checks=own), lambda verdict: None)
    assert verdict.result is CheckResult.UNKNOWN
    assert not verdict.checks
    assert load(dump(verdict)) == verdict


def test_checks_end_before_their_time_is_over(tmp_path: Path) -> None:
    checks = programs(tmp_path, bad=FAULTY, hangs="sleep 60", late=HEALTHY)
    service = Service(ServiceName.CHECK, checks=("bad", "hangs", "late"), timeout_s=6.0)
    verdict = checked(request(service, checks=checks), lambda verdict: None)

    assert verdict.result is CheckResult.FAULTY
    hangs, late = verdict.findings[1:]
    assert (hangs.check, late.check) == ("hangs", "late")
    assert hangs.what.endswith(", its time limit")
    assert late.what == "there was no time left for it"


def test_without_names_all_checks_of_the_machine_are_run(tmp_path: Path) -> None:
    asked = request(
        Service(ServiceName.CHECK, level=1),
        checks=programs(tmp_path, own=HEALTHY),
        directory=str(tmp_path),
    )
    verdict = checked(asked, lambda verdict: None)
    assert {"disk", "own"} <= {*verdict.checks}
    assert not {"bundled", "dcgm"} & {*verdict.checks}


def test_the_clock_is_checked_by_what_the_controller_measured() -> None:
    service = Service(ServiceName.CHECK, checks=("clock",), clock_ahead_s=-90.0)
    verdict = checked(request(service), lambda verdict: None)
    assert verdict.checks == ("clock",)
    assert verdict.result is CheckResult.HEALTHY  # it only observes
    assert "1m30s behind" in verdict.findings[0].what


def test_a_result_is_always_whole(tmp_path: Path) -> None:
    keep = keep_at(tmp_path / "result")
    service = Service(ServiceName.CHECK, checks=("good",))
    code = serve(request(service, checks=programs(tmp_path, good=HEALTHY)), keep)
    assert code == 0
    assert load((tmp_path / "result").read_text()).result is CheckResult.HEALTHY
    assert {each.name for each in tmp_path.iterdir()} == {"good", "result"}


def test_a_reset_names_gpus_as_the_driver_knows_them() -> None:
    ran = Ran(DONE)
    told: list[str] = []
    service = Service(ServiceName.RESET, (1, 2), why="Xid 48 on GPU 1")
    assert reset(request(service), ran, told.append).result is CheckResult.HEALTHY
    assert ran.commands == [("nvidia-smi", "--gpu-reset", "-i", "1,GPU-c")]
    assert told == ["resetting 2 GPUs: Xid 48 on GPU 1"]


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (
            CheckRun(Ending.EXITED, 3, errors="in use by another client"),
            "nvidia-smi ended with exit code 3 (in use by another client)",
        ),
        (CheckRun(Ending.NOT_STARTED, why="nvidia-smi is not installed"), "could not be started"),
        (CheckRun(Ending.TIMED_OUT, ran_s=90.0), "nvidia-smi did not end within 1m30s"),
        (CheckRun(Ending.SIGNALLED, 9), "nvidia-smi was ended by SIGKILL"),
    ],
)
def test_a_reset_that_fails_says_why(run: CheckRun, sentence: str) -> None:
    verdict = reset(request(Service(ServiceName.RESET)), Ran(run), lambda line: None)
    assert verdict.result is CheckResult.UNKNOWN
    assert sentence in verdict.sentence()


def test_a_reset_of_gpus_that_are_not_there_runs_nothing() -> None:
    ran = Ran(DONE)
    verdict = reset(request(Service(ServiceName.RESET, (9,))), ran, lambda line: None)
    assert verdict.result is CheckResult.UNKNOWN
    assert ran.commands == []


def here(controller: str) -> bool:
    return True


def elsewhere(controller: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("fields", "is_here", "command"),
    [
        ({}, elsewhere, ("systemctl", "reboot")),
        ({}, here, None),
        ({"is_part": True}, elsewhere, None),
        ({"reboot": "ipmitool power 'cycle now'"}, here, ("ipmitool", "power", "cycle now")),
        ({"reboot": "/opt/reboot", "is_part": True}, elsewhere, ("/opt/reboot",)),
    ],
)
def test_a_machine_is_rebooted_if_it_is_the_agents_alone_or_the_operator_says_how(
    fields: dict[str, object],
    is_here: Callable[[str], bool],
    command: tuple[str, ...] | None,
) -> None:
    ran, told = Ran(DONE), list[str]()
    service = Service(ServiceName.REBOOT, why="an incident")
    verdict = reboot(request(service, **fields), ran, told.append, is_here)

    assert ran.commands == ([] if command is None else [command])
    assert told == ([] if command is None else ["rebooting: an incident"])
    assert (verdict.result is CheckResult.HEALTHY) == (command is not None)
    if command is None:
        assert "only a command of the operator's (--reboot-command)" in verdict.sentence()


@pytest.mark.parametrize(
    ("controller", "expected"),
    [
        ("127.0.0.1:7601", True),
        ("[::1]:7601", True),
        ("localhost:7601", True),
        ("no such host:1", True),
        ("", True),
        ("192.0.2.1:7601", False),  # an address for documentation
    ],
)
def test_a_controller_that_may_be_here_counts_as_here(controller: str, expected: bool) -> None:
    assert is_on_this_machine(controller) is expected


def test_the_machine_is_told_in_one_line(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.touch()
    tell_machine("rebooting: an Xid 79", log)
    assert log.read_text() == "<28>muster: rebooting: an Xid 79"
    tell_machine("nobody hears", tmp_path / "nowhere")
