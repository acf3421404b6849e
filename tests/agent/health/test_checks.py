"""Checks in Python, the checks that come along, and how checks are found and carried out."""

import errno
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.agent.health.bundled import (
    PATTERNS,
    HostMemory,
    Measured,
    judge,
    measure,
    of_gpus,
)
from muster.agent.health.check import (
    CheckedMachine,
    HealthCheck,
    OperatorCheck,
    carry_out,
    check_machine,
)
from muster.agent.health.clock import ClockCheck
from muster.agent.health.disk import DiskCheck
from muster.agent.health.found import BUILTIN, check_class, check_names
from muster.agent.health.running import Command
from muster.core.errors import InvalidSpec
from muster.core.health.check_run import CheckRun, Ending
from muster.core.health.operator import read_report
from muster.core.health.verdict import CheckResult, Severity, Verdict, verdict_of
from muster.core.resources import Device

HEALTHY, FAULTY, UNKNOWN = CheckResult.HEALTHY, CheckResult.FAULTY, CheckResult.UNKNOWN
PLUG_IN = """
from muster.agent.health.check import PythonCheck
from muster.core.health.verdict import Finding, Severity, verdict_of

class Fans(PythonCheck):
    name = "fans"
    def look(self, machine):
        print("this is not the report")
        speed = machine.setting("fan_rpm", 0)
        what = f"{len(machine.devices)} GPUs, fan at {speed:g} rpm"
        return verdict_of("fans", [Finding("fans", Severity.FAULT, what)])

class Broken(PythonCheck):
    name = "broken"
    def look(self, machine):
        raise KeyError("fan7")

nothing = 1
"""


@pytest.fixture
def plug_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed distribution with checks of its own."""
    (tmp_path / "fans.py").write_text(PLUG_IN)
    information = tmp_path / "fans-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: fans\nVersion: 1\n")
    (information / "entry_points.txt").write_text(
        "[muster.health_checks]\nfans = fans:Fans\nbroken = fans:Broken\nodd = fans:nothing\n"
        "absent = fans_absent:Fans\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.fixture
def machine(tmp_path: Path) -> CheckedMachine:
    return CheckedMachine(directory=str(tmp_path))


def test_every_check_that_comes_along_is_found_and_has_its_name() -> None:
    assert {*BUILTIN} <= {*check_names()}
    made = {name: check_class(name)() for name in BUILTIN}
    assert {name: check.name for name, check in made.items()} == {name: name for name in BUILTIN}
    assert [name for name, check in made.items() if check.observe_only] == ["clock"]
    assert {name: check.level for name, check in made.items()} == {
        "bundled": 2,
        "clock": 1,
        "dcgm": 2,
        "disk": 1,
        "nvml": 1,
    }


@pytest.mark.usefixtures("plug_ins")
def test_check_that_is_not_there_or_is_none_is_refused_with_what_there_is() -> None:
    with pytest.raises(InvalidSpec, match=r"expected one of absent, broken, bundled, .*mean nvml"):
        check_class("nvm")
    with pytest.raises(InvalidSpec, match="expected a class derived from HealthCheck"):
        check_class("odd")
    with pytest.raises(InvalidSpec, match="cannot be loaded: No module named 'fans_absent'"):
        check_class("absent")


@pytest.mark.usefixtures("plug_ins")
def test_check_of_somebody_else_runs_in_a_process_of_its_own_and_gets_the_facts() -> None:
    devices = (Device(0, "H100", "GPU-0"), Device(1, "H100", "GPU-1"))
    machine = CheckedMachine(devices=devices, settings={"fan_rpm": 120.0})
    verdict = carry_out(check_class("fans")(), machine)
    assert verdict.sentence() == "faulty by fans: 2 GPUs, fan at 120 rpm"


@pytest.mark.usefixtures("plug_ins")
def test_check_that_raises_is_unknown_with_its_last_words(machine: CheckedMachine) -> None:
    verdict = carry_out(check_class("broken")(), machine)
    assert verdict.result is UNKNOWN
    assert "KeyError: 'fan7'" in verdict.findings[0].told


class Wrong(HealthCheck):
    """A check whose own code fails in the agent."""

    name = "wrong"

    def command(self, machine: CheckedMachine) -> Command:
        raise ZeroDivisionError("by design")

    def read(self, run: CheckRun, machine: CheckedMachine) -> Verdict:
        raise AssertionError("not reached")


def test_check_whose_own_code_fails_is_unknown_and_the_others_go_on(
    machine: CheckedMachine, caplog: pytest.LogCaptureFixture
) -> None:
    script = OperatorCheck("ours", ("printf", '{"version": 1, "verdict": "healthy"}'), 30.0)
    verdict = check_machine(machine, [Wrong(), script])
    assert verdict.checks == ("wrong", "ours")
    assert verdict.result is UNKNOWN
    assert verdict.findings[0].what == "the check itself failed with ZeroDivisionError"
    assert "by design" in caplog.text


def test_check_above_the_level_is_left_out(machine: CheckedMachine) -> None:
    class Long(OperatorCheck):
        level = 3

    assert check_machine(machine, [Long("long", ("false",), 1.0)]).sentence() == (
        "unknown by no check: no check applies to it"
    )


def test_operators_command_sees_the_level_and_the_gpus(tmp_path: Path) -> None:
    program = tmp_path / "check"
    program.write_text(
        '#!/bin/sh\nprintf \'{"version":1,"verdict":"faulty","findings":[{"what":"%s %s"}]}\' '
        '"$MUSTER_CHECK_LEVEL" "$CUDA_VISIBLE_DEVICES"\nexit 1\n'
    )
    program.chmod(0o755)
    devices = (Device(0, "A"), Device(3, "A"))
    check = OperatorCheck("ours", (str(program),), 30.0)
    assert carry_out(check, CheckedMachine(devices=devices)).findings[0].what == "2 0,3"
    observing = OperatorCheck("ours", (str(program),), 30.0, observe_only=True)
    assert carry_out(observing, CheckedMachine(devices=devices)).result is HEALTHY


def test_disk_within_its_limits_is_healthy(tmp_path: Path) -> None:
    limits = {"disk_free": 0.0, "disk_sync_s": 60.0}
    machine = CheckedMachine(directory=str(tmp_path), settings=limits)
    assert DiskCheck().look(machine) == verdict_of("disk")


def test_disk_that_is_too_full_or_too_slow_for_its_limits_is_no_fault_of_the_machine(
    tmp_path: Path,
) -> None:
    limits = {"disk_free": 1.1, "disk_sync_s": 0.0}
    machine = CheckedMachine(directory=str(tmp_path), settings=limits)
    verdict = DiskCheck().look(machine)
    assert [(each.test, each.severity) for each in verdict.findings] == [
        ("slow", Severity.UNKNOWN),
        ("full", Severity.WARNING),
    ]
    assert "less than 110.0%" in verdict.findings[1].what
    assert list(tmp_path.iterdir()) == []


def test_slow_disk_of_a_machine_on_which_kernels_run_is_a_warning(tmp_path: Path) -> None:
    limits = {"disk_free": 0.0, "disk_sync_s": 0.0}
    machine = CheckedMachine(directory=str(tmp_path), settings=limits, is_shared=True)
    verdict = DiskCheck().look(machine)
    assert [(each.test, each.severity) for each in verdict.findings] == [("slow", Severity.WARNING)]
    assert verdict.result is HEALTHY


def test_disk_that_cannot_be_looked_at_is_unknown(tmp_path: Path) -> None:
    absent = CheckedMachine(directory=str(tmp_path / "absent"))
    verdict = DiskCheck().look(absent)
    assert verdict.result is UNKNOWN
    assert "No such file or directory" in verdict.findings[0].what


@pytest.mark.parametrize(
    ("number", "result"),
    [
        (errno.ENOSPC, HEALTHY),
        (errno.EDQUOT, HEALTHY),
        (errno.EIO, FAULTY),
        (errno.EROFS, FAULTY),
        (errno.EACCES, UNKNOWN),
    ],
)
def test_disk_that_takes_nothing_is_faulty_unless_it_is_full(
    machine: CheckedMachine,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    result: CheckResult,
) -> None:
    def fail(_: Path) -> float:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("muster.agent.health.disk._sync_s", fail)
    verdict = DiskCheck().look(machine)
    assert verdict.result is result
    assert os.strerror(number) in verdict.findings[0].what


@pytest.mark.parametrize(
    ("offset_s", "what"),
    [
        (0.9, None),
        (-1.0, None),
        (1.5, "1.5s ahead of the controller's, more than 1s"),
        (-90.0, "1m30s behind the controller's, more than 1s"),
    ],
)
def test_clock_may_differ_by_a_limit(offset_s: float, what: str | None) -> None:
    verdict = ClockCheck().look(CheckedMachine(clock_offset_s=offset_s))
    assert verdict.result is (HEALTHY if what is None else FAULTY)
    assert what is None or what in verdict.findings[0].what


def test_clock_that_was_not_measured_is_not_judged() -> None:
    assert not ClockCheck().applies(CheckedMachine())
    assert ClockCheck().look(CheckedMachine()).result is UNKNOWN


class StuckMemory(HostMemory):
    """Memory of a GPU with a bit that stays 0."""

    device: int | None = 4

    def fill(self, pattern: int) -> None:
        super().fill(pattern)
        self._cells[100] &= 0xFE


def test_memory_that_keeps_what_is_written_is_healthy() -> None:
    measured = measure(HostMemory(1 << 16))
    assert measured.findings == ()
    assert 0 < measured.bytes_per_s < math.inf


def test_bit_that_is_stuck_is_found_with_its_patterns() -> None:
    findings = measure(StuckMemory(1 << 16)).findings
    assert [each.what for each in findings] == [
        "1 byte of 64KiB lost 0xff",
        "1 byte of 64KiB lost 0x55",
    ]
    assert {each.device for each in findings} == {4}
    assert len(PATTERNS) == 4


def test_gpu_that_copies_much_more_slowly_than_the_others_is_faulty() -> None:
    speeds = [2000e9, 2010e9, 900e9, 1990e9]
    verdict = judge([Measured(gpu, (), speed) for gpu, speed in enumerate(speeds)])
    assert verdict.sentence() == (
        "faulty by bundled: GPU 2, bandwidth: it copies 900 GB/s, and the machine's GPUs do 1,995 "
        "GB/s in the median"
    )
    assert judge([Measured(0, (), 900e9)]).result is HEALTHY


class _Cuda:
    """Stands in for torch where a GPU cannot be used."""

    def __init__(self, words: str) -> None:
        self.cuda = self
        self._words = words

    def device(self, kind: str, ordinal: int) -> tuple[str, int]:
        return kind, ordinal

    def mem_get_info(self, place: object) -> tuple[int, int]:
        raise RuntimeError(self._words)

    def empty_cache(self) -> None:
        pass


@pytest.mark.parametrize(
    ("words", "severity"),
    [
        ("CUDA error: uncorrectable ECC error encountered", Severity.FAULT),
        ("CUDA out of memory", Severity.UNKNOWN),
    ],
)
def test_gpu_on_which_cuda_fails_is_faulty_if_its_memory_is_the_reason(
    words: str, severity: Severity
) -> None:
    (measured,) = of_gpus(_Cuda(words), [6])
    assert [(each.device, each.severity, each.told) for each in measured.findings] == [
        (6, severity, words)
    ]


def test_bundled_check_says_so_where_it_can_test_no_gpu() -> None:
    command = [sys.executable, "-P", "-m", "muster.agent.health.bundled"]
    ended = subprocess.run(command, capture_output=True, check=True, timeout=60)
    run = CheckRun(Ending.EXITED, 0, ended.stdout)
    verdict = read_report(run, "bundled", "bundled")
    assert verdict.result is HEALTHY
    assert "no GPU memory was tested" in verdict.findings[0].what
    assert ended.stderr.startswith(b"host: ")
