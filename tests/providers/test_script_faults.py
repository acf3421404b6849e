"""Executables of the provider ``script`` that misbehave: calls end, and nothing of them is left."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.patience import until
from tests.providers.scripts import MACHINE, ORDER, Writer, refusal, spec, writing

from muster.autoscaling.standing import CreateOutcome
from muster.providers.provider import Scope
from muster.providers.script.executable import Script


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Writer]:
    with writing(tmp_path) as write:
        yield write


def test_missing_executable_is_told_with_its_name(tmp_path: Path) -> None:
    scope = Scope("c-1", "one", tmp_path)
    refused = refusal(Script(spec("/no/such/program"), scope).check)
    assert refused.outcome is CreateOutcome.BAD_REQUEST
    assert "/no/such/program is not there" in refused.told
    refused = refusal(Script(spec("no-such-program"), scope).check)
    assert "no-such-program is not there on the controller's PATH" in refused.told


def test_file_that_cannot_be_executed_is_told(write: Writer, tmp_path: Path) -> None:
    provider = write("exit 0")
    program = tmp_path / "provider"
    program.chmod(0o644)
    refused = refusal(provider.check)
    assert refused.outcome is CreateOutcome.BAD_REQUEST
    assert "is not executable: chmod +x it" in refused.told
    program.write_text("no interpreter is named here")
    program.chmod(0o755)
    refused = refusal(provider.check)
    assert refused.outcome is CreateOutcome.BAD_REQUEST
    assert "cannot be started: Exec format error" in refused.told


@pytest.mark.parametrize(
    "line",
    [
        "sleep 600",
        "trap '' TERM INT HUP; while :; do sleep 600; done",
        "trap '' TERM; (trap '' TERM; setsid sleep 600 & sleep 600) & sleep 600",
        "env -i setsid sh -c 'env -i setsid sleep 600 & sleep 600' & exec sleep 600",
        "sleep 600 </dev/null >/dev/null 2>&1 & kill -STOP $$",
    ],
)
def test_executable_that_hangs_is_ended_with_all_it_started(write: Writer, line: str) -> None:
    before = _sleepers()
    provider = write(f"echo working >&2; {line}", timeout=1)
    began_s = time.monotonic()
    refused = refusal(provider.create, ORDER)
    assert time.monotonic() - began_s < 10.0
    assert refused.outcome is CreateOutcome.UNKNOWN
    assert "did not end within 1 s; its last words: working" in refused.told
    until(lambda: _sleepers() <= before)


def test_executable_that_cleans_up_when_told_to_end_is_heard(write: Writer) -> None:
    line = "trap 'echo cleaned up >&2; exit 1' TERM; sleep 600 & wait"
    refused = refusal(write(line, timeout=1).delete, "sl-1")
    assert "exit code 1: cleaned up" in refused.told


@pytest.mark.parametrize(
    "left",
    ["sleep 600 &", "setsid sleep 600 &", "env -i setsid sleep 600 &", "nohup setsid sleep 600 &"],
)
def test_process_that_keeps_the_outputs_open_neither_delays_the_answer_nor_stays(
    write: Writer, left: str
) -> None:
    before = _sleepers()
    began_s = time.monotonic()
    assert write(f"{left} echo '{{\"gone\": true}}'").delete("sl-1")
    assert time.monotonic() - began_s < 5.0
    until(lambda: _sleepers() <= before)


def _sleepers() -> set[int]:
    """Processes that sleep as those of these tests, whatever their environment."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == b"sleep\x00600\x00":
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("head -c 100000000 /dev/zero", "answers with more than 4 MiB"),
        ("yes", "answers with more than 4 MiB"),
        ("trap '' PIPE TERM; while :; do yes; done", "answers with more than 4 MiB"),
        ("echo begins >&2; yes error >&2", "writes more than 16 MiB of errors"),
        ("yes & yes >&2", "more than"),
    ],
)
def test_endless_output_ends_the_call_and_takes_little_memory(
    write: Writer, line: str, told: str
) -> None:
    before = psutil.Process().memory_info().rss
    began_s = time.monotonic()
    refused = refusal(write(line).create, ORDER)
    assert time.monotonic() - began_s < 15.0
    assert refused.outcome is CreateOutcome.UNKNOWN
    assert told in refused.told
    assert psutil.Process().memory_info().rss - before < 64 << 20


def test_executable_that_does_not_read_a_large_request_is_no_problem(
    write: Writer,
) -> None:
    order = replace(ORDER, attributes={f"a{n}": "x" * 255 for n in range(10_000)})
    line = f"exec <&-; echo '{{\"machines\": [{MACHINE}]}}'"
    assert len(write(line).create(order)) == 1


def test_call_ends_with_the_controller(write: Writer, tmp_path: Path) -> None:
    write(f"echo >{tmp_path}/begun; sleep 600")
    code = (
        "from pathlib import Path; from tests.providers.test_script import spec; "
        "from muster.providers.script.executable import Script; "
        "from muster.providers.provider import Scope; "
        f"Script(spec({str(tmp_path / 'provider')!r}, environment={{'MUSTER_TEST': "
        f"{str(tmp_path)!r}}}), Scope('c-1', 'one', Path({str(tmp_path)!r}))).check()"
    )
    before = _sleepers()
    controller = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(Path.cwd())}
    )
    until((tmp_path / "begun").exists)
    controller.kill()
    controller.wait()
    until(lambda: _sleepers() <= before)


def test_calls_on_several_threads_do_not_disturb_each_other(write: Writer) -> None:
    provider = write("sleep 0.3; echo '{\"gone\": true}'")
    gone: list[bool] = []
    threads = [
        threading.Thread(target=lambda: gone.append(provider.delete("sl-1"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert gone == [True] * 8


def test_call_leaves_no_descriptor_open(write: Writer) -> None:
    good = write("echo '{\"gone\": true}'")
    good.delete("sl-1")
    before = _open_files()
    good.delete("sl-1")
    refusal(write("sleep 600", timeout=1).check)
    refusal(Script(spec("/no/such/program"), good.scope).check)
    assert _open_files() == before


def _open_files() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}
