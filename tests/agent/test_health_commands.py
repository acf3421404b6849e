"""Probes by command: the loop beside a program, and what the agent reads of it."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from tests.patience import until

from muster.agent.accounts import MachineAccounts
from muster.agent.config import AgentConfig
from muster.agent.health_commands import HealthCommands, read_result, scratch_of
from muster.core.serving.health_command import RESULT_FILE, SCRIPT, SCRIPT_FILE, beside
from muster.core.serving.probes import ProbeOrder, ProbeResult, ProbeTarget

ORDER = ProbeOrder("dep/rte", 3, ProbeTarget("", 80, 1, 5, kernel="krn-1", kernel_generation=1))
Begin = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts a program with a probe beside it, in a session of its own, which is killed."""
    script = tmp_path / SCRIPT_FILE
    script.write_text(SCRIPT)
    script.chmod(0o755)
    begun: list[subprocess.Popen[str]] = []

    def start(
        probe: Sequence[str], command: Sequence[str] = ("sleep", "60"), timeout_s: float = 5.0
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            beside(command, probe, 0.05, timeout_s),
            cwd=tmp_path,
            env={**os.environ, "MUSTER_SCRATCH": str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        begun.append(process)
        return process

    yield start
    for each in begun:
        os.killpg(each.pid, signal.SIGKILL)
        each.communicate()


def test_program_is_the_main_process_with_its_own_words_and_output(begin: Begin) -> None:
    process = begin(["true"], ["/bin/sh", "-c", 'echo $$ "$@"; exit 7', "sh", "a b", "", "c"])
    assert process.stdout is not None
    assert process.stdout.read() == f"{process.pid} a b  c\n"
    assert process.wait() == 7


def test_exit_code_and_last_line_of_each_probe_are_written_down(
    begin: Begin, tmp_path: Path
) -> None:
    begin(["/bin/sh", "-c", 'echo first; echo "at $PWD $1" >&2; exit 4', "sh", "two words"])
    number, code, line, age_s = until(lambda: read_result(tmp_path))
    assert (code, line) == (4, f"at {tmp_path} two words")
    assert 0 <= age_s < 5
    assert until(lambda: (read_result(tmp_path) or (0,))[0] > number)


def test_probe_that_does_not_end_is_stopped_with_what_it_began(
    begin: Begin, tmp_path: Path
) -> None:
    begin(["/bin/sh", "-c", "echo $$; sleep 61 & echo $!; wait"], timeout_s=0.3)
    _, code, line, _ = until(lambda: read_result(tmp_path))
    assert code == 124
    until(lambda: not Path(f"/proc/{int(line)}").exists())


def test_probe_that_ends_leaves_nothing_of_its_group_behind(begin: Begin, tmp_path: Path) -> None:
    begin(["/bin/sh", "-c", "sleep 62 & echo $!"])
    _, code, line, _ = until(lambda: read_result(tmp_path))
    assert code == 0
    until(lambda: not Path(f"/proc/{int(line)}").exists())


def test_agent_tells_each_result_once_with_its_streak(tmp_path: Path) -> None:
    told: list[ProbeResult] = []
    scratch = {("krn-1", 1): tmp_path}
    with closing(HealthCommands(told.extend, lambda *key: scratch.get(key))) as commands:
        commands.obey([ORDER])
        for number, code, line in ((1, 1, "no"), (2, 1, "no"), (3, 0, ""), (4, 124, "slow")):
            new = tmp_path / "new"
            new.write_text(f"{number} {code}\n{line}\n")
            new.rename(tmp_path / RESULT_FILE)
            until(partial(_has, told, number))
        commands.obey([ProbeOrder("dep/rte", 3)])
    assert [(each.good, each.streak, each.detail) for each in told] == [
        (False, 1, "its command ended with exit code 1: no"),
        (False, 2, "its command ended with exit code 1: no"),
        (True, 1, "its command ended with exit code 0"),
        (False, 1, "its command did not end within 5 s: slow"),
    ]
    assert {(each.route, each.generation) for each in told} == {("dep/rte", 3)}


def _has(told: list[ProbeResult], number: int) -> bool:
    return len(told) == number


@pytest.mark.parametrize("what", ["link", "fifo", "directory", "nonsense", "nothing", "long"])
def test_replica_that_writes_something_else_tells_nothing_and_hangs_nobody(
    tmp_path: Path, what: str
) -> None:
    result, elsewhere = tmp_path / RESULT_FILE, tmp_path / "elsewhere"
    elsewhere.write_text("1 0\nsecret\n")
    match what:
        case "link":
            result.symlink_to(elsewhere)
        case "fifo":
            os.mkfifo(result)
        case "directory":
            result.mkdir()
        case "nonsense":
            result.write_bytes(b"\xff\x00 x\n")
        case "long":
            result.write_text("9" * 100_000)
    assert read_result(tmp_path) is None


def test_scratch_directory_is_found_by_an_id_and_no_path(tmp_path: Path) -> None:
    kernel = "krn-01kaec7mc2qv3x9p"
    (tmp_path / "kernels" / f"{kernel}.2").mkdir(parents=True)
    (tmp_path / "other.2").mkdir()
    users = tmp_path / "users"
    users.mkdir()
    config = AgentConfig(tmp_path, "", "a", users_directory=users)
    find = scratch_of(tmp_path, MachineAccounts(config))
    assert find(kernel, 2) == tmp_path / "kernels" / f"{kernel}.2"
    assert find(kernel, 1) is None
    assert find("../other", 2) is None
