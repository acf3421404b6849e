"""The watch as its agent runs it: a kernel's log and a watching process that are files and programs
of the test."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from tests.patience import until_awaited

from muster.agent.boot import Boot
from muster.agent.health.counters import INTERVAL_S
from muster.agent.health.judge import Moment
from muster.agent.health.kmsg import KernelLog, NoKernelLog
from muster.agent.health.memory import FILE
from muster.agent.health.watch import HealthWatch
from muster.core.health.counters import GpuMeans
from muster.core.health.kernel_log import XidEvent
from muster.core.health.remedy import Remedy
from muster.core.resources import Device

NOON = 1_700_000_000.0
DEVICES = (Device(0, "H100", "GPU-0"), Device(1, "H100", "GPU-1"))
ADDRESSES = '{"GPU-0": "00000000:1B:00.0", "GPU-1": "00000000:5D:00.0"}'
WATCHING = f"""
import sys, time
print('{{"addresses": {ADDRESSES}, "xids": [], "next_s": 60}}', flush=True)
time.sleep(600)
"""
TELLS_XID = WATCHING.replace("[]", "[[1, 79]]")


class Machine:
    """A machine that has been up for an hour, with the files by which it tells of itself."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "kmsg"
        self.log.write_bytes(b"")
        self.boot = Boot("boot-1")
        self.boot_s = 3600.0
        self.told = 0
        self.held: set[int] = set()
        self.program = WATCHING
        self.sequence = 0

    def xid(self, number: int, address: str = "0000:1b:00", *, at_s: float | None = None) -> None:
        self.sequence += 1
        micros = int(1e6 * (self.boot_s if at_s is None else at_s))
        line = f"4,{self.sequence},{micros},-;NVRM: Xid (PCI:{address}): {number}, pid=7, words\n"
        with self.log.open("ab") as file:
            file.write(line.encode())

    def _tell(self) -> None:
        self.told += 1

    @asynccontextmanager
    async def watched(self, devices: tuple[Device, ...] = DEVICES) -> AsyncIterator[HealthWatch]:
        watch = HealthWatch(
            self.directory,
            self.boot,
            devices,
            self._tell,
            lambda: self.held,
            kernel_log=self.log,
            command=(sys.executable, "-c", self.program),
            settle_s=0.05,
            now=lambda: Moment(self.boot_s - self.boot.began_s, NOON + self.boot_s),
        )
        running = asyncio.create_task(watch.run())
        try:
            yield watch
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def told(watch: HealthWatch) -> list[tuple[Remedy, tuple[int, ...]]]:
    return [(each.remedy, each.devices) for each in watch.box.kept]


async def test_xid_in_the_log_is_told_kept_and_not_read_again(machine: Machine) -> None:
    file = machine.directory / FILE
    machine.program = WATCHING.replace("[]", "[[1, 95]]")
    async with machine.watched() as watch:
        await until_awaited(lambda: watch.judge.knows_addresses)
        machine.xid(95, "0000:5d:00")
        await until_awaited(lambda: watch.box.kept)
        assert told(watch) == [(Remedy.RESET, (1,))]
        assert machine.told == 1
        await until_awaited(lambda: file.exists() and b"Xid 95" in file.read_bytes())
    async with machine.watched() as watch:
        machine.xid(79)
        await until_awaited(lambda: len(watch.box.kept) == 2)
        assert told(watch) == [(Remedy.RESET, (1,)), (Remedy.CHECK, (0,))]


async def test_what_is_noted_is_not_told_again_after_a_restart(machine: Machine) -> None:
    file = machine.directory / FILE
    machine.xid(95)
    async with machine.watched() as watch:
        await until_awaited(lambda: file.exists() and b"Xid 95" in file.read_bytes())
        watch.box.noted(watch.box.last_seq)
        assert watch.look()
        await until_awaited(lambda: b"NVIDIA's catalogue" not in file.read_bytes())
    async with machine.watched() as watch:
        assert watch.box.kept == ()


async def test_records_of_before_the_boot_of_a_part_of_a_machine_are_passed_over(
    machine: Machine,
) -> None:
    machine.boot = Boot("system/part", began_s=1000.0)
    machine.xid(95, at_s=900.0)
    machine.xid(79, at_s=1500.0)
    async with machine.watched() as watch:
        await until_awaited(lambda: watch.box.kept)
        assert [each.what[:6] for each in watch.box.kept] == ["Xid 79"]


async def test_without_a_log_nvml_tells_of_xids(machine: Machine) -> None:
    machine.log.unlink()
    machine.program = TELLS_XID
    async with machine.watched() as watch:
        await until_awaited(lambda: watch.box.kept)
        assert told(watch) == [(Remedy.REBOOT, (1,))]


async def test_log_that_fails_is_given_up_for_nvml(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[int] = []

    def fail(log: KernelLog, limit: int) -> list[XidEvent]:
        failed.append(limit)
        raise NoKernelLog("the kernel's log cannot be read: Invalid argument")

    monkeypatch.setattr(KernelLog, "events", fail)
    machine.program = TELLS_XID.replace("import sys, time", "import sys, time; time.sleep(0.5)")
    async with machine.watched() as watch:
        await until_awaited(lambda: watch.box.kept)
        assert told(watch) == [(Remedy.REBOOT, (1,))]
    assert len(failed) == 1


async def test_with_a_log_nvml_only_confirms(machine: Machine) -> None:
    machine.program = TELLS_XID.replace("[[1, 79]]", "[[0, 95], [1, 79]]")
    async with machine.watched() as watch:
        await until_awaited(lambda: watch.judge.knows_addresses)
        machine.xid(95)
        await until_awaited(lambda: watch.box.kept)
        assert told(watch) == [(Remedy.RESET, (0,))]


async def test_damaged_memory_does_not_keep_it_from_watching(machine: Machine) -> None:
    (machine.directory / FILE).write_bytes(b"{half")
    machine.xid(95)
    async with machine.watched() as watch:
        await until_awaited(lambda: watch.box.kept)
        assert watch.box.kept[0].seq > 1_000_000, "above all numbers that were used before"


async def test_watch_leaves_no_process(machine: Machine) -> None:
    before = {each.pid for each in psutil.Process().children(recursive=True)}
    async with machine.watched() as watch:
        await until_awaited(lambda: watch.judge.knows_addresses)
        assert {each.pid for each in psutil.Process().children(recursive=True)} - before
    assert {each.pid for each in psutil.Process().children(recursive=True)} <= before


def test_machine_that_never_had_a_gpu_needs_no_watch(machine: Machine) -> None:
    watch = HealthWatch(machine.directory, machine.boot, (), lambda: None)
    assert not watch.is_needed


async def test_samples_of_gpus_that_work_holds_are_kept_for_the_next_heartbeat(
    machine: Machine,
) -> None:
    samples = '[{"device": 0, "busy": 90.0}, {"device": 1, "busy": 7.0}]'
    machine.program = WATCHING.replace('"next_s"', f'"samples": {samples}, "next_s"')
    machine.held = {1}
    async with machine.watched() as watch:
        await until_awaited(lambda: watch.judge.knows_addresses)
        assert watch.counters.take() == (), "an interval is not over"
        machine.boot_s += INTERVAL_S
        assert watch.counters.take() == (GpuMeans(1, 7.0),)


async def test_xid_of_a_moment_ago_is_known_to_whoever_asks_at_once(machine: Machine) -> None:
    async with machine.watched() as watch:
        await until_awaited(lambda: watch.judge.knows_addresses)
        machine.xid(31)
        assert watch.errors_of([0]) == "Xid 31 on GPU 0, page fault of GPU memory"
        assert watch.errors_of([1]) == ""
    assert watch.box.kept == (), "it concerns the application alone"
