"""The judge of errors that are no Xids, and of GPUs that are partitioned."""

import msgspec
import pytest
from tests.agent.health.test_judge import HOUR_S, SECOND, THERE, Machine, Told

from muster.agent.health.gpu_watch import GpuReport
from muster.agent.health.memory import WatchMemory, encoded
from muster.core.health.kernel_log import ErrorKind, KernelRecord, parse_error
from muster.core.health.remedy import Remedy
from muster.core.resources import Device


@pytest.fixture
def machine() -> Machine:
    """A machine that has been up for an hour, with two GPUs whose addresses are known."""
    machine = Machine()
    machine.wait(HOUR_S)
    assert machine.report() == []
    return machine


def logged(machine: Machine, *lines: str) -> list[Told]:
    """The sightings of lines that the driver writes now, at once."""
    records = (KernelRecord(number, machine.boot_s, line) for number, line in enumerate(lines))
    events = [event for event in map(parse_error, records) if event is not None]
    return machine.told(lambda: machine.judge.xids(events, machine.now))


def sxid(number: int = 20034, words: str = "Fatal, Link 48 LTSSM Fault Up", switch: int = 1) -> str:
    return f"nvidia-nvswitch{switch}: SXid (PCI:0000:0{switch}:00.0): {number}, {words}"


def test_gpu_that_fell_off_the_bus_without_an_xid_is_checked(machine: Machine) -> None:
    lines = (
        "NVRM: The NVIDIA GPU 0000:1b:00.0\\x0aNVRM: (PCI ID: 10de:26b5) installed in this system "
        "has\\x0aNVRM: fallen off the bus and is not responding to commands.",
        "NVRM: GPU 0000:1b:00.0: RmInitAdapter failed! (0x22:0x56:894)",
    )
    assert logged(machine, *lines) == [(Remedy.CHECK, (0,), False)]
    assert machine.judge.errors_of({0}, [], machine.now).startswith("Xid 79 on GPU 0, ")


def test_gpu_that_fell_off_the_bus_is_told_once_with_the_xid_of_that(machine: Machine) -> None:
    machine.nvml(79)
    lines = (
        "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the "
        "bus.",
        "NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.",
    )
    assert logged(machine, *lines) == [(Remedy.REBOOT, (0,), True)]


def test_gpu_that_the_driver_cannot_start_is_checked_once(machine: Machine) -> None:
    line = "NVRM: GPU 0000:5d:00.0: RmInitAdapter failed! (0x22:0x56:894)"
    assert logged(machine, line, line) == [(Remedy.CHECK, (1,), False)]
    machine.wait(10.0)
    assert logged(machine, line) == []
    other = "NVRM: GPU 0000:77:00.0: RmInitAdapter failed! (0x22:0x56:894)"
    assert logged(machine, other) == [], "it is another container's"


def test_fatal_errors_of_switches_have_the_machine_checked_once(machine: Machine) -> None:
    lines = [sxid(switch=switch) for switch in (0, 1, 1, 2)]
    assert logged(machine, *lines) == [(Remedy.CHECK, (), False)]
    (sighting,) = machine.box.kept
    assert sighting.what == (
        "SXid 20034 of NVSwitch 0, Link 48 LTSSM Fault Up: the driver calls it fatal, so GPUs may "
        "not reach each other; and 2 more SXids"
    )
    machine.restart()
    assert logged(machine, *lines) == []
    why = machine.judge.errors_of({0}, [], machine.now)
    assert "SXid 20034 of NVSwitch 2, Link 48 LTSSM Fault Up" in why
    assert machine.judge.errors_of(set(), [], machine.now) == "", "it used no GPU"


def test_error_of_a_switch_that_is_not_fatal_is_noted_alone(machine: Machine) -> None:
    assert logged(machine, sxid(12028, "Non-fatal, Link 32 egress PRIV error")) == []
    assert machine.judge.errors_of({0}, [], machine.now) == ""


def test_errors_that_are_no_xids_are_remembered_over_a_restart(machine: Machine) -> None:
    logged(machine, sxid(), "NVRM: GPU 0000:5d:00.0: RmInitAdapter failed! (0x22:0x56:894)")
    again = msgspec.json.decode(encoded(machine.memory), type=WatchMemory)
    kinds = {event.kind for events in again.xids.values() for event in events}
    assert kinds == {ErrorKind.SXID, ErrorKind.NOT_STARTED}


# Partitions

ON_FIRST = (Device(0, "A100 MIG 3g.20gb", "MIG-0"), Device(1, "A100 MIG 1g.5gb", "MIG-1"))
WHOLE = Device(2, "A100", "GPU-1")


def partitioned(machine: Machine, *there: str) -> list[Told]:
    report = GpuReport(addresses=THERE, partitions=dict.fromkeys(there, THERE["GPU-0"]))
    return machine.told(lambda: machine.judge.gpus(report, machine.now))


def test_xid_of_a_gpu_concerns_all_of_its_partitions(machine: Machine) -> None:
    machine.reboot((*ON_FIRST, WHOLE))
    machine.wait(HOUR_S)
    assert partitioned(machine, "MIG-0", "MIG-1") == []
    assert machine.xid(74, by_nvml=False) == [(Remedy.CHECK, (0, 1), False)]
    assert machine.judge.errors_of({1}, [], machine.now).startswith("Xid 74 on GPU 1")
    assert machine.judge.errors_of({2}, [], machine.now) == ""
    assert machine.xid(74, address=SECOND, by_nvml=False) == [(Remedy.CHECK, (2,), False)]


def test_xid_that_nvml_confirms_is_a_fault_of_all_partitions_of_its_gpu(machine: Machine) -> None:
    machine.reboot((*ON_FIRST, WHOLE))
    machine.wait(HOUR_S)
    partitioned(machine, "MIG-0", "MIG-1")
    assert machine.xid(79, by_nvml=False) == [(Remedy.CHECK, (0, 1), False)]
    events = [(0, 79), (1, 79)]
    told = machine.told(lambda: machine.judge.nvml_events(events, machine.now))
    assert told == [(Remedy.REBOOT, (0, 1), True)]


def test_partitions_that_an_operator_removes_are_no_missing_gpus(machine: Machine) -> None:
    machine.reboot((*ON_FIRST, WHOLE))
    machine.wait(HOUR_S)
    assert partitioned(machine, "MIG-0", "MIG-1") == []
    machine.reboot((WHOLE,))
    machine.wait(HOUR_S)
    assert partitioned(machine) == []
    assert set(machine.memory.gpus) == {"GPU-0", "GPU-1"}
