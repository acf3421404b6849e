"""Programs of checks as real processes: bounded in time and in what they print."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.patience import until

from muster.agent.health.check import CheckedMachine, carry_out
from muster.agent.health.dcgm import DcgmCheck
from muster.agent.health.running import KEPT_BYTES, Command, run
from muster.core.health.check_run import CheckRun, Ending
from muster.core.health.verdict import MAX_TOLD, CheckResult
from muster.core.resources import Device

LONG_S = 30.0
GPU = CheckedMachine(devices=(Device(0, "H100", "GPU-0"),))


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Command]:
    """Plants a ``dcgmi`` of these shell lines, the only one on the path."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def plant(lines: str) -> Command:
        program = tmp_path / "dcgmi"
        program.write_text(f"#!/bin/sh\n{lines}\n")
        program.chmod(0o755)
        return Command(("dcgmi",))

    return plant


Plant = Callable[[str], Command]


def group_of(ran: CheckRun) -> int:
    """The process group of a program that printed its own number first."""
    return int(ran.output.split()[0])


def is_gone(group: int) -> bool:
    """Whether no process of a group runs; those that nobody has waited for yet do not."""
    found = [each for each in psutil.process_iter(["status"]) if in_group(each.pid, group)]
    return all(each.info["status"] == psutil.STATUS_ZOMBIE for each in found)


def in_group(pid: int, group: int) -> bool:
    try:
        return os.getpgid(pid) == group
    except ProcessLookupError:
        return False


def test_program_that_ends_tells_its_output_and_its_exit_code(planted: Plant) -> None:
    ran = run(planted("cat; echo trouble >&2; exit 3"), LONG_S)
    assert (ran.ending, ran.code, ran.output) == (Ending.EXITED, 3, b"")
    assert ran.errors == "trouble"


def test_program_reads_its_standard_input(planted: Plant) -> None:
    command = planted("cat")
    ran = run(Command(command.arguments, b'{"level": 2}'), LONG_S)
    assert ran.output == b'{"level": 2}'


def test_arguments_are_given_as_they_are_and_to_no_shell(planted: Plant) -> None:
    planted('printf %s "$1"')
    ran = run(Command(("dcgmi", "$(id); `id` > x")), LONG_S)
    assert ran.output == b"$(id); `id` > x"


def test_program_gets_few_variables_of_the_agent(
    planted: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_TOKEN", "secret")
    command = Command(planted("env").arguments, environment={"CUDA_VISIBLE_DEVICES": "0,1"})
    printed = run(command, LONG_S).output.decode().splitlines()
    assert "CUDA_VISIBLE_DEVICES=0,1" in printed
    assert not [line for line in printed if "secret" in line]


def test_gigabyte_is_read_to_its_end_and_little_of_it_kept(planted: Plant) -> None:
    ran = run(planted("exec head -c 1073741824 /dev/zero"), LONG_S)
    assert ran.ending is Ending.EXITED
    assert len(ran.output) == KEPT_BYTES
    assert ran.dropped_bytes == 2**30 - KEPT_BYTES


def test_errors_are_kept_from_their_end(planted: Plant) -> None:
    ran = run(planted("yes error | head -c 1000000 >&2; echo last >&2"), LONG_S)
    assert ran.errors.endswith("last")
    assert len(ran.errors) <= MAX_TOLD


def test_program_that_hangs_is_ended_with_all_that_it_started(planted: Plant) -> None:
    ran = run(planted("echo $$; sleep 60 & sleep 60"), 0.4)
    assert ran.ending is Ending.TIMED_OUT
    until(lambda: is_gone(group_of(ran)))


def test_program_may_clean_up_before_it_is_killed(planted: Plant) -> None:
    ran = run(planted("trap 'echo bye >&2; exit 0' TERM; while :; do :; done"), 0.4)
    assert (ran.ending, ran.errors) == (Ending.TIMED_OUT, "bye")


def test_program_that_ignores_sigterm_is_killed(planted: Plant) -> None:
    ran = run(planted("trap '' TERM; echo $$; while :; do sleep 1; done"), 0.4, grace_s=0.1)
    assert (ran.ending, ran.code) == (Ending.TIMED_OUT, signal.SIGKILL)
    until(lambda: is_gone(group_of(ran)))


def test_program_that_prints_without_end_is_ended(planted: Plant) -> None:
    ran = run(planted("trap '' TERM; exec cat /dev/zero"), 0.3, grace_s=0.1)
    assert ran.ending is Ending.TIMED_OUT
    assert len(ran.output) == KEPT_BYTES


def test_program_that_no_signal_ends_is_left_and_told(planted: Plant) -> None:
    """In place of a process that hangs in a driver: signals do not reach it."""
    sent: list[tuple[int, int]] = []
    ran = run(
        planted("echo $$; exec sleep 60"),
        0.4,
        grace_s=0.05,
        killed_s=0.05,
        send=lambda group, number: sent.append((group, number)),
    )
    group = group_of(ran)
    assert ran.ending is Ending.NOT_ENDED
    assert sent == [(group, signal.SIGTERM), (group, signal.SIGKILL)]
    os.killpg(group, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(group))  # it is no zombie either


def test_process_that_a_program_leaves_is_ended_and_not_waited_for(planted: Plant) -> None:
    ran = run(planted("echo $$; sleep 60 & exit 0"), LONG_S)
    assert (ran.ending, ran.code) == (Ending.EXITED, 0)
    assert ran.ran_s < LONG_S / 2
    until(lambda: is_gone(group_of(ran)))


def test_signal_that_ended_a_program_is_told(planted: Plant) -> None:
    ran = run(planted("kill -SEGV $$"), LONG_S)
    assert (ran.ending, ran.code) == (Ending.SIGNALLED, signal.SIGSEGV)


def test_program_that_is_not_there_or_cannot_be_started_is_told(planted: Plant) -> None:
    ran = run(Command(("no-such-check",)), LONG_S)
    assert (ran.ending, ran.why) == (Ending.NOT_STARTED, "no-such-check is not installed")
    program = Path(os.environ["PATH"].split(":")[0]) / "dcgmi"
    planted("")
    program.write_text("no program")
    ran = run(Command(("dcgmi",)), LONG_S)
    assert (ran.ending, ran.why) == (Ending.NOT_STARTED, "Exec format error")


REPORT = """cat <<'END'
{"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [{"name": "memory",
"results": [{"entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "status": "Fail",
"warnings": [{"error_severity": 2, "error_category": 10, "warning": "bad cells"}]}]}]}]}}
END
echo "$@" >&2
exit 205"""


@pytest.mark.parametrize(
    ("lines", "result", "said"),
    [
        (REPORT, CheckResult.FAULTY, "GPU 0, memory: the test failed"),
        ("exec head -c 67108864 /dev/zero", CheckResult.UNKNOWN, "67,108,864 bytes, which is too"),
        ("printf '{\"DCGM Diag'", CheckResult.UNKNOWN, "printed no complete JSON"),
        ("exit 217", CheckResult.UNKNOWN, "it runs another diagnostic already"),
        ("sleep 60", CheckResult.UNKNOWN, "its time limit"),
    ],
)
def test_planted_dcgmi_is_judged_by_what_it_prints(
    planted: Plant,
    monkeypatch: pytest.MonkeyPatch,
    lines: str,
    result: CheckResult,
    said: str,
) -> None:
    planted(lines)
    limit_s = 0.2 if "sleep" in lines else LONG_S
    monkeypatch.setattr(DcgmCheck, "time_limit_s", lambda *_: limit_s)
    verdict = carry_out(DcgmCheck(), GPU)
    assert verdict.result is result
    assert said in verdict.sentence()


def test_dcgmi_is_asked_for_the_level_and_the_agents_gpus() -> None:
    machine = CheckedMachine(devices=(Device(0, "A"), Device(3, "A")), level=3)
    check = DcgmCheck()
    assert check.command(machine).arguments == ("dcgmi", "diag", "-r", "3", "-j", "-i", "0,3")
    assert check.time_limit_s(machine) == 3600.0


def test_dcgmi_applies_to_gpus_where_it_is_installed_from_level_2_on(
    planted: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted("exit 0")
    check = DcgmCheck()
    assert check.applies(GPU)
    assert not check.applies(CheckedMachine(devices=GPU.devices, level=1))
    assert not check.applies(CheckedMachine())
    monkeypatch.setenv("PATH", "/nonexistent")
    assert not check.applies(GPU)
