"""The hidden health of hollow machines: what services answer, what they cure, and how machines come
back."""

import math
import random
from dataclasses import dataclass, field

import pytest
from proving.hollow.health import Ailment, CheckFault, Comeback, Health
from proving.hollow.machine import Machine
from proving.hollow.supervisor import Kernel, Run
from proving.hollow.timeline import Timeline
from proving.hollow.virtual_clock import VirtualClock

from muster.control.health.ladder import Heal
from muster.core.health.remedy import Remedy
from muster.core.health.service import Service, ServiceName, load
from muster.core.health.verdict import CheckResult
from muster.core.ids import KernelId
from muster.core.resources import GPU_WHOLE, Device, DeviceShare
from muster.wire.messages import KernelTemplate, Start

DEVICES = (Device(0, "H100"), Device(1, "H100"))


@dataclass
class Bed:
    """A machine with two devices, and how often it went down or its agent was started anew."""

    timeline: Timeline = field(default_factory=lambda: Timeline(VirtualClock()))
    downs: list[float] = field(default_factory=list)
    restarts: list[float] = field(default_factory=list)
    kernels: int = 0

    def __post_init__(self) -> None:
        machine = Machine("m", self.timeline.clock)
        self.health = Health(
            self.timeline,
            machine,
            random.Random(1),
            lambda: DEVICES,
            self.downs.append,
            self.restarts.append,
        )

    def start(self, service: Service | None, *devices: int) -> Start:
        self.kernels += 1
        template = KernelTemplate((), {}, None, {}, 1.0, 0, 0, "", "", 0, service)
        shares = tuple(DeviceShare(index, GPU_WHOLE) for index in devices)
        return Start(KernelId(f"kn-{self.kernels}"), 1, template, {}, shares)

    def serve(self, name: ServiceName, *devices: int) -> Run:
        """Carry out a service to its end."""
        start = self.start(Service(name, devices))
        run = self.health.course_of(start, lambda start: Run())
        self.health.carry_out(Kernel(start, run, start.shares))
        self.timeline.run(1.0)
        return run

    def checked(self, *devices: int) -> CheckResult:
        return load(self.serve(ServiceName.CHECK, *devices).result).result


@pytest.fixture
def bed() -> Bed:
    return Bed()


def test_checks_tell_the_truth_of_the_devices_that_they_look_at(bed: Bed) -> None:
    assert bed.checked() is CheckResult.HEALTHY
    bed.health.break_device(1, Ailment(remedy=Remedy.RESET))
    assert [bed.checked(), bed.checked(0), bed.checked(1)] == [
        CheckResult.FAULTY,
        CheckResult.HEALTHY,
        CheckResult.FAULTY,
    ]
    verdict = load(bed.serve(ServiceName.CHECK).result)
    assert verdict.remedy is Remedy.RESET
    bed.health.mend(1)
    assert bed.checked() is CheckResult.HEALTHY


@pytest.mark.parametrize(
    ("fault", "result"),
    [
        (CheckFault.SAYS_HEALTHY, CheckResult.HEALTHY),
        (CheckFault.SAYS_FAULTY, CheckResult.FAULTY),
        (CheckFault.SAYS_UNKNOWN, CheckResult.UNKNOWN),
        (CheckFault.SAYS_NOTHING, CheckResult.UNKNOWN),
        (CheckFault.SAYS_HALF, CheckResult.UNKNOWN),
        (CheckFault.FAILS, CheckResult.UNKNOWN),
        (CheckFault.HANGS, CheckResult.UNKNOWN),
        (CheckFault.HANGS_IN_KERNEL, CheckResult.UNKNOWN),
    ],
)
def test_check_that_goes_wrong_does_so_once_and_is_remembered(
    bed: Bed, fault: CheckFault, result: CheckResult
) -> None:
    bed.health.check_faults.append(fault)
    assert bed.checked() is result
    assert [each.result for each in bed.health.answers.values()] == [result]
    assert bed.checked() is CheckResult.HEALTHY


@pytest.mark.parametrize(
    ("cured_by", "left"),
    [(Heal.RESET, 0), (Heal.REBOOT, 1), (Heal.HARD_REBOOT, 2), (None, 3)],
)
def test_ailment_is_cured_by_its_means_and_stronger_ones(
    bed: Bed, cured_by: Heal | None, left: int
) -> None:
    health = bed.health
    health.break_device(0, Ailment(cured_by))
    for count, heal in enumerate(
        (
            lambda: bed.serve(ServiceName.RESET),
            lambda: bed.serve(ServiceName.REBOOT),
            health.reboot_hard,
        )
    ):
        assert health.is_well is (count > left)
        heal()
    assert health.is_well is (left < 3)


def test_reset_of_other_devices_cures_nothing(bed: Bed) -> None:
    bed.health.break_device(0, Ailment(Heal.RESET))
    bed.serve(ServiceName.RESET, 1)
    assert not bed.health.is_well


def test_failing_resets_and_reboots_do_nothing(bed: Bed) -> None:
    health = bed.health
    health.break_device(0, Ailment(Heal.RESET))
    health.failing_resets = health.failing_reboots = 1
    assert bed.serve(ServiceName.RESET).exit_code == 1
    assert bed.serve(ServiceName.REBOOT).exit_code == 1
    assert (health.is_well, bed.downs) == (False, [])
    assert bed.serve(ServiceName.RESET).exit_code == 0
    assert health.is_well


@pytest.mark.parametrize(
    ("comeback", "downs", "restarts"),
    [
        (Comeback.ANEW, [7.0], []),
        (Comeback.NEVER, [math.inf], []),
        (Comeback.SAME_BOOT, [], [7.0]),
        (Comeback.TWICE, [7.0, 7.0], []),
    ],
)
def test_machines_come_back_in_many_ways(
    bed: Bed, comeback: Comeback, downs: list[float], restarts: list[float]
) -> None:
    bed.health.comebacks.append((comeback, 7.0))
    bed.serve(ServiceName.REBOOT)
    bed.timeline.run(60.0)
    assert (bed.downs, bed.restarts) == (downs, restarts)


def test_work_fails_on_a_broken_device_alone(bed: Bed) -> None:
    bed.health.break_device(1, Ailment())

    def code(*devices: int) -> int:
        return bed.health.course_of(bed.start(None, *devices), lambda start: Run()).exit_code

    assert [code(), code(0), code(1), code(0, 1)] == [0, 0, 1, 1]
