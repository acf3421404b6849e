"""A supervisor counts as gone once it has ended and nothing that it ran is there."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import until

from muster.agent.supervisor.process_tree import ID_VARIABLE
from muster.agent.supervisor_process import identify, is_gone


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_process_that_runs_is_not_gone(process: subprocess.Popen[bytes]) -> None:
    assert not is_gone(identify(process.pid), set())


def test_process_that_has_ended_is_gone(process: subprocess.Popen[bytes]) -> None:
    supervisor = identify(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(supervisor, set())
    process.wait()
    assert is_gone(supervisor, set())
    assert identify(process.pid) == ""


def test_process_whose_number_another_has_now_is_gone(process: subprocess.Popen[bytes]) -> None:
    namespace, user, pid, ticks = identify(process.pid).split(":")
    assert is_gone(":".join((namespace, user, pid, str(int(ticks) - 1))), set())


def test_process_whose_kernel_runs_on_is_not_gone(process: subprocess.Popen[bytes]) -> None:
    supervisor = identify(process.pid)
    environment = {**os.environ, ID_VARIABLE: "krn-1"}
    with subprocess.Popen(["sleep", "60"], env=environment) as kernel:
        until(lambda: b"krn-1" in Path(f"/proc/{kernel.pid}/environ").read_bytes())
        process.kill()
        process.wait()
        assert not is_gone(supervisor, {"krn-0", "krn-1"})
        kernel.kill()
        kernel.wait()
        assert is_gone(supervisor, {"krn-0", "krn-1"})


@pytest.mark.parametrize("supervisor", ["", "what an agent says", "1:0:2:3"])
def test_process_that_cannot_be_seen_from_here_is_not_gone(supervisor: str) -> None:
    assert not is_gone(supervisor, set())
