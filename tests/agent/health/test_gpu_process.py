"""The watching process as real processes: heard, given up when silent, and never more than one."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from tests.patience import until_awaited

from muster.agent.health.gpu_process import GpuProcess
from muster.agent.health.gpu_watch import GpuReport

REPORT = 'print(json.dumps({"addresses": {"GPU-0": "0000:1b:00"}, "next_s": %s}), flush=True)'
HEADER = "import json, os, sys, time\nopen(sys.argv[1], 'a').write(f'{os.getpid()}\\n')\n"
SOON_S = 0.05


class Heard:
    """The reports and silences of a process, as its agent hears them."""

    def __init__(self) -> None:
        self.reports: list[GpuReport] = []
        self.silences: list[float] = []
        self.changed = asyncio.Event()
        self.process: GpuProcess | None = None

    def report(self, report: GpuReport) -> None:
        self.reports.append(report)
        self.changed.set()

    def silent(self, for_s: float) -> None:
        self.silences.append(for_s)
        self.changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(30.0):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Programs:
    """Programs in place of the watching one; each notes its process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.pids_file = directory / "pids"

    def of(self, *lines: str) -> Sequence[str]:
        file = self._directory / "watch.py"
        file.write_text(HEADER + "\n".join(lines))
        return (sys.executable, str(file), str(self.pids_file))

    def started(self) -> list[int]:
        if not self.pids_file.exists():
            return []
        return [int(each) for each in self.pids_file.read_text().split()]


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


@asynccontextmanager
async def watched(command: Sequence[str], hang_s: float = 20.0) -> AsyncIterator[Heard]:
    heard = Heard()
    process = GpuProcess(
        (), heard.report, heard.silent, command=command, hang_s=hang_s, first_pause_s=SOON_S
    )
    heard.process = process
    running = asyncio.create_task(process.run())
    try:
        yield heard
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        process.close()


def gone(pids: Sequence[int]) -> bool:
    return not any(psutil.pid_exists(each) for each in pids)


async def test_reports_are_heard_and_nothing_is_left(programs: Programs) -> None:
    command = programs.of(REPORT % 1, REPORT % 2, "time.sleep(60)")
    async with watched(command) as heard:
        await heard.until(lambda: len(heard.reports) == 2)
        assert [each.next_s for each in heard.reports] == [1.0, 2.0]
    assert gone(programs.started())
    assert heard.silences == []


async def test_process_gets_the_gpus_and_few_variables(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_TOKEN", "secret")
    lines = (
        "told = json.load(sys.stdin)['devices'] == [] and 'MUSTER_TOKEN' not in os.environ",
        "print(json.dumps({'error': str(told)}), flush=True)",
        "time.sleep(60)",
    )
    async with watched(programs.of(*lines)) as heard:
        await heard.until(lambda: heard.reports)
    assert heard.reports[0].error == "True"


async def test_process_that_hangs_is_told_killed_and_started_again(programs: Programs) -> None:
    command = programs.of(REPORT % 0, "time.sleep(60)")
    async with watched(command, hang_s=0.3) as heard:
        await heard.until(lambda: len(heard.silences) == 2)
        started = programs.started()
        assert gone(started[:1])
        assert sum(map(psutil.pid_exists, started)) <= 1, "never more than one"
    assert heard.silences[0] == pytest.approx(0.3)
    assert gone(programs.started())


async def test_late_report_is_waited_for_as_long_as_it_said(programs: Programs) -> None:
    command = programs.of(REPORT % 30, "time.sleep(0.8)", REPORT % 30, "time.sleep(60)")
    async with watched(command, hang_s=20.0) as heard:
        await heard.until(lambda: len(heard.reports) == 2)
    assert heard.silences == []


@pytest.mark.parametrize(
    "lines",
    [
        ["print('{', flush=True)", "time.sleep(60)"],
        ["print('{\"findings\": 7}', flush=True)", "time.sleep(60)"],
        ["sys.stdout.write('x' * (3 << 20)); sys.stdout.flush()", "time.sleep(60)"],
        ["sys.exit(3)"],
    ],
    ids=["no JSON", "another form", "a line without an end", "ends at once"],
)
async def test_process_that_is_not_understood_is_replaced(
    programs: Programs, lines: list[str]
) -> None:
    async with watched(programs.of(*lines)) as heard:
        await until_awaited(lambda: len(programs.started()) >= 2)
        assert sum(map(psutil.pid_exists, programs.started())) <= 1
    assert heard.reports == []
    assert gone(programs.started())


async def test_process_lets_the_gpus_go_while_they_are_reset(programs: Programs) -> None:
    async with watched(programs.of(REPORT % 30, "time.sleep(60)")) as heard:
        await heard.until(lambda: heard.reports)
        assert heard.process is not None
        heard.process.pause()
        await until_awaited(lambda: gone(programs.started()))
        await asyncio.sleep(3 * SOON_S)
        assert len(programs.started()) == 1
        heard.process.resume()
        await heard.until(lambda: len(heard.reports) == 2)
    assert heard.silences == []


async def test_program_that_is_not_there_ends_nothing(tmp_path: Path) -> None:
    async with watched([str(tmp_path / "absent")]) as heard:
        await asyncio.sleep(3 * SOON_S)
    assert heard.reports == []
