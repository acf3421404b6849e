"""The judge of Xids and of reports on GPUs: what is told of a machine, and what is not."""

from collections.abc import Callable, Mapping

import pytest

from muster.agent.health.gpu_watch import GpuReport
from muster.agent.health.judge import (
    AGAIN_S,
    GRACE_S,
    MAX_EVENTS,
    MISHAP_S,
    TOLD_S,
    HealthJudge,
    Moment,
)
from muster.agent.health.memory import WatchMemory
from muster.agent.health.sightings import SightingBox
from muster.core.health.kernel_log import XidEvent
from muster.core.health.remedy import Remedy
from muster.core.health.verdict import Finding, Severity
from muster.core.health.xid import BURST_S, DAY_S
from muster.core.resources import Device

NOON = 1_700_000_000.0
FIRST, SECOND = "0000:1b:00", "0000:5d:00"
DEVICES = (Device(0, "H100", "GPU-0"), Device(1, "H100", "GPU-1"))
THERE = {"GPU-0": "00000000:1B:00.0", "GPU-1": "00000000:5D:00.0"}
GPU_AT = {FIRST: 0, SECOND: 1}
HOUR_S = 3600.0
LOST = Finding("nvml", Severity.FAULT, "it is gone", 0, "GPU-0", "device", remedy=Remedy.REBOOT)
Told = tuple[Remedy, tuple[int, ...], bool]


class Machine:
    """A machine whose watch is restarted and which reboots; its memory stays."""

    def __init__(self) -> None:
        self.memory = WatchMemory()
        self.boots, self.boot_s, self.time_s = 1, 0.0, NOON
        self.box = SightingBox()
        self.judge = self._judge()

    def _judge(self, devices: tuple[Device, ...] = DEVICES) -> HealthJudge:
        self.memory.enter(self.boot, self.boot_s, self.time_s)
        return HealthJudge(self.memory, self.box, self.boot, devices)

    @property
    def boot(self) -> str:
        return f"boot-{self.boots}"

    @property
    def now(self) -> Moment:
        return Moment(self.boot_s, self.time_s)

    def wait(self, seconds: float) -> None:
        self.boot_s += seconds
        self.time_s += seconds
        self.memory.note_time(self.boot_s, self.time_s)

    def restart(self) -> None:
        self.judge = self._judge()

    def reboot(self, devices: tuple[Device, ...] = DEVICES) -> None:
        self.boots += 1
        self.time_s += 60.0
        self.boot_s = 60.0
        self.judge = self._judge(devices)

    def xid(
        self, *numbers: int, address: str = FIRST, detail: str = "", by_nvml: bool = True
    ) -> list[Told]:
        """The sightings of Xids that come now, at once, in the log and, if wished, from NVML."""
        if by_nvml and address in GPU_AT:
            self.nvml(*numbers, gpu=GPU_AT[address])
        events = [XidEvent(address, number, detail, self.boot_s) for number in numbers]
        return self.told(lambda: self.judge.xids(events, self.now))

    def nvml(self, *numbers: int, gpu: int = 0) -> list[Told]:
        """The sightings of Xids that come now from NVML alone."""
        events = [(gpu, number) for number in numbers]
        return self.told(lambda: self.judge.nvml_events(events, self.now))

    def report(
        self, *findings: Finding, there: Mapping[str, str] = THERE, error: str = ""
    ) -> list[Told]:
        """The sightings of a report that comes now."""
        report = GpuReport(error, {} if error else there, findings)
        return self.told(lambda: self.judge.gpus(report, self.now))

    def told(self, action: Callable[[], None]) -> list[Told]:
        before = self.box.last_seq
        action()
        new = [each for each in self.box.kept if each.seq > before]
        assert all(each.boot_id == self.boot and each.at == self.time_s for each in new)
        return [(each.remedy, each.devices, each.confirmed) for each in new]


@pytest.fixture
def machine() -> Machine:
    """A machine that has been up for an hour, with two GPUs whose addresses are known."""
    machine = Machine()
    machine.wait(HOUR_S)
    assert machine.report() == []
    return machine


# Xids


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (43, []),  # ignored
        (31, []),  # the application's
        (74, [(Remedy.CHECK, (0,), False)]),
        (999, [(Remedy.CHECK, (0,), False)]),  # nobody knows it
        (95, [(Remedy.RESET, (0,), True)]),
        (79, [(Remedy.REBOOT, (0,), True)]),
        (142, [(Remedy.OPERATOR, (0,), True)]),
    ],
)
def test_xid_is_told_as_what_follows_it(machine: Machine, number: int, told: list[Told]) -> None:
    assert machine.xid(number) == told


def test_xid_tells_why_a_program_of_its_gpu_failed_a_moment_ago(machine: Machine) -> None:
    machine.xid(31)
    words = "Xid 31 on GPU 0, page fault of GPU memory"
    assert machine.judge.errors_of({0, 1}, [], machine.now) == words
    assert machine.judge.errors_of({1}, [], machine.now) == ""
    machine.wait(1.0)
    later = XidEvent(SECOND, 4242, "", machine.boot_s)
    assert machine.judge.errors_of({0, 1}, [later], machine.now) == f"{words}; Xid 4242 on GPU 1"
    machine.wait(TOLD_S + 1.0)
    assert machine.judge.errors_of({0, 1}, [], machine.now) == ""


def test_xids_of_one_mishap_are_one_sighting_of_the_gravest(machine: Machine) -> None:
    assert machine.xid(45, 48, 79) == [(Remedy.REBOOT, (0,), True)]
    assert "and 1 more Xid" in machine.box.kept[-1].what


def test_clean_up_before_what_it_cleans_up_is_not_told(machine: Machine) -> None:
    assert machine.xid(45, 31) == []


def test_action_that_nvml_names_outranks_the_table(machine: Machine) -> None:
    named = Finding(
        "nvml", Severity.FAULT, "asks", 0, "GPU-0", "recovery action", remedy=Remedy.RESET
    )
    machine.report(named)
    assert machine.xid(79) == [(Remedy.RESET, (0,), True)]


def test_xid_that_comes_again_and_again_is_told_once_until_it_does_not_end(
    machine: Machine,
) -> None:
    assert machine.xid(95) == [(Remedy.RESET, (0,), True)]
    for _ in range(int(MISHAP_S / 50.0)):
        machine.wait(50.0)
        assert machine.xid(95) == []
    machine.wait(50.0)
    assert machine.xid(95) == [(Remedy.REBOOT, (0,), True)], "and whatever was tried did not help"


def test_repetition_within_a_day_goes_one_step_further_over_a_reboot(machine: Machine) -> None:
    assert machine.xid(95) == [(Remedy.RESET, (0,), True)]
    machine.wait(10.0)
    machine.reboot()
    machine.wait(HOUR_S)
    assert machine.xid(95) == [(Remedy.REBOOT, (0,), True)]


def test_repetition_after_more_than_a_day_or_on_another_gpu_is_none(machine: Machine) -> None:
    machine.xid(95)
    machine.wait(HOUR_S)
    assert machine.xid(95, address=SECOND) == [(Remedy.RESET, (1,), True)]
    machine.reboot()
    machine.wait(DAY_S)
    assert machine.xid(95) == [(Remedy.RESET, (0,), True)]


def test_restart_of_the_agent_within_a_mishap_tells_nothing_twice(machine: Machine) -> None:
    machine.xid(95)
    machine.wait(BURST_S / 2)
    machine.restart()
    assert machine.xid(95) == []


def test_step_further_by_repetition_is_confirmed_by_nobody(machine: Machine) -> None:
    machine.xid(74)
    machine.wait(HOUR_S)
    assert machine.xid(74) == [(Remedy.RESET, (0,), False)]


def test_xid_of_another_containers_gpu_is_not_told(machine: Machine) -> None:
    assert machine.xid(79, address="0000:ff:00") == []


def test_xid_where_no_address_is_known_asks_for_a_look_at_the_machine() -> None:
    machine = Machine()
    machine.wait(HOUR_S)
    assert machine.xid(79) == [(Remedy.CHECK, (), False)]


@pytest.mark.parametrize("number", [48, 79, 95, 142])
def test_xid_of_the_log_that_nvml_does_not_confirm_asks_for_a_look(
    machine: Machine, number: int
) -> None:
    assert machine.xid(number, by_nvml=False) == [(Remedy.CHECK, (0,), False)]
    assert "NVML has not confirmed it" in machine.box.kept[-1].what


def test_xid_that_nvml_confirms_a_moment_later_is_a_fault(machine: Machine) -> None:
    machine.xid(79, by_nvml=False)
    machine.wait(2.0)
    assert machine.nvml(79) == [(Remedy.REBOOT, (0,), True)]
    assert machine.nvml(79) == [], "it is reported once"


def test_xid_is_confirmed_by_its_own_gpu_number_and_time_alone(machine: Machine) -> None:
    machine.nvml(79, gpu=1)
    machine.nvml(48)
    assert machine.xid(79, by_nvml=False) == [(Remedy.CHECK, (0,), False)]
    machine.wait(BURST_S + 1.0)
    assert machine.nvml(79) == []


def test_xid_is_confirmed_by_a_fault_that_nvml_finds_on_its_gpu(machine: Machine) -> None:
    machine.report(LOST)
    assert machine.xid(119, by_nvml=False) == [(Remedy.RESET, (0,), True)]
    assert machine.xid(119, address=SECOND, by_nvml=False) == [(Remedy.CHECK, (1,), False)]


def test_flood_of_unconfirmed_xids_and_of_nvmls_events_fills_no_memory(machine: Machine) -> None:
    for number in range(5_000):
        machine.xid(79, by_nvml=False, detail=str(number))
        machine.nvml(number)
    assert len(machine.judge._events) <= MAX_EVENTS
    assert len(machine.judge._unconfirmed) <= MAX_EVENTS


def test_addresses_are_known_before_nvml_answers_after_a_restart(machine: Machine) -> None:
    machine.restart()
    assert machine.xid(79, address=SECOND) == [(Remedy.REBOOT, (1,), True)]


def test_while_drivers_come_up_only_what_names_a_fault_is_told(machine: Machine) -> None:
    machine.reboot()
    assert machine.boot_s < GRACE_S
    assert machine.xid(74) == []
    assert machine.xid(79) == [(Remedy.REBOOT, (0,), True)]


def test_flood_of_different_xids_fills_no_memory(machine: Machine) -> None:
    for number in range(300, 5_000):
        machine.wait(0.01)
        machine.xid(number, detail="x" * 300)
    assert len(machine.memory.xids[FIRST]) <= 64
    assert len(machine.box.kept) <= 64


# What NVML tells


def test_finding_is_told_once_two_reports_have_it(machine: Machine) -> None:
    assert machine.report(LOST) == []
    assert machine.report(LOST) == [(Remedy.REBOOT, (0,), True)]
    assert machine.report(LOST) == []


def test_finding_of_a_moment_is_not_told(machine: Machine) -> None:
    for _ in range(5):
        assert machine.report(LOST) == []
        assert machine.report() == []


def test_finding_that_comes_and_goes_is_told_once_an_hour(machine: Machine) -> None:
    told = 0
    for _ in range(int(2 * AGAIN_S / 40.0)):
        for findings in ([LOST], [LOST], []):
            machine.wait(40.0 / 3)
            told += len(machine.report(*findings))
    assert told == 2


def test_finding_that_stands_is_not_repeated_after_a_restart_but_after_a_reboot(
    machine: Machine,
) -> None:
    machine.report(LOST)
    machine.report(LOST)
    machine.restart()
    machine.wait(2 * AGAIN_S)
    assert machine.report(LOST) + machine.report(LOST) == []
    machine.reboot()
    machine.wait(GRACE_S)
    assert machine.report(LOST) + machine.report(LOST) == [(Remedy.REBOOT, (0,), True)]


def test_what_the_driver_does_not_tell_asks_for_a_look(machine: Machine) -> None:
    unclear = Finding("nvml", Severity.UNKNOWN, "no word", 1, "GPU-1", "ecc", remedy=Remedy.RESET)
    machine.report(unclear)
    assert machine.report(unclear) == [(Remedy.CHECK, (1,), False)]
    machine.report(error="Driver Not Loaded")
    assert machine.report(error="Driver Not Loaded") == [(Remedy.CHECK, (), False)]


def test_nothing_is_found_while_drivers_come_up(machine: Machine) -> None:
    machine.reboot()
    assert machine.report(LOST) + machine.report(LOST) + machine.report(error="not yet") == []


def test_driver_that_hangs_is_told_once_an_hour(machine: Machine) -> None:
    def silent() -> None:
        machine.judge.silent(70.0, machine.now)

    assert machine.told(silent) == [(Remedy.CHECK, (), False)]
    assert machine.told(silent) == []
    machine.report()
    assert machine.told(silent) == []
    machine.wait(AGAIN_S + 1.0)
    machine.report()
    assert machine.told(silent) == [(Remedy.CHECK, (), False)]


# GPUs that are missing


def test_gpu_that_is_not_there_after_a_reboot_asks_for_another_and_then_for_an_operator(
    machine: Machine,
) -> None:
    left = {"GPU-0": THERE["GPU-0"]}
    machine.reboot(DEVICES[:1])
    machine.wait(GRACE_S)
    assert machine.report(there=left) == [(Remedy.REBOOT, (), True)]
    assert machine.report(there=left) == []
    machine.restart()
    assert machine.report(there=left) == []
    machine.reboot(DEVICES[:1])
    machine.wait(GRACE_S)
    assert machine.report(there=left) == [(Remedy.OPERATOR, (), True)]
    machine.reboot(DEVICES[:1])
    machine.wait(GRACE_S)
    assert machine.report(there=left) == [], "an operator has seen it"


def test_gpu_that_a_reboot_brings_back_is_as_any_other(machine: Machine) -> None:
    machine.reboot(DEVICES[:1])
    machine.wait(GRACE_S)
    machine.report(there={"GPU-0": THERE["GPU-0"]})
    machine.reboot()
    machine.wait(GRACE_S)
    assert machine.report() == []
    assert machine.memory.missing == {}


def test_gpu_that_is_lost_while_it_works_is_told_by_its_finding_alone(machine: Machine) -> None:
    left = {"GPU-1": THERE["GPU-1"]}
    assert machine.report(LOST, there=left) == []
    assert machine.report(LOST, there=left) == [(Remedy.REBOOT, (0,), True)]
    machine.reboot(DEVICES[1:])
    machine.wait(GRACE_S)
    assert machine.report(there=left) == [(Remedy.OPERATOR, (), True)], "the reboot did not help"
