"""The hidden health of a hollow machine, which checks only guess at: the devices that are broken,
what cures them, and how its services and boots go wrong."""

import math
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum

from muster.control.health.ladder import Heal
from muster.core.health.remedy import Remedy
from muster.core.health.service import Service, ServiceName, dump
from muster.core.health.verdict import (
    CheckResult,
    Finding,
    Severity,
    Verdict,
    unknown,
    verdict_of,
)
from muster.core.resources import Device
from muster.store.records import LedgerKey
from muster.wire.messages import Start
from proving.hollow.machine import Machine
from proving.hollow.supervisor import Kernel, Run
from proving.hollow.timeline import Timeline

CHECK_S = 1.0
RESET_S = 0.5
ORDER_S = 0.2
"""How long the agent takes to have its machine reboot."""
BOOT_S = 5.0
_HANGS_S = 1e6
_CHECK = "hollow"


@dataclass(frozen=True, slots=True)
class Ailment:
    """A broken device.

    Args:
        cured_by: the mildest means that mends it; None where no means does.
        remedy: that checks say it calls for.
    """

    cured_by: Heal | None = Heal.REBOOT
    remedy: Remedy = Remedy.CHECK


class CheckFault(StrEnum):
    """The ways in which a check goes wrong."""

    HANGS = "hangs"
    HANGS_IN_KERNEL = "hangs in the kernel"  # SIGKILL does not end it either, for a while
    SAYS_HEALTHY = "says healthy"  # whatever the devices are
    SAYS_FAULTY = "says faulty"
    SAYS_UNKNOWN = "says unknown"
    SAYS_NOTHING = "says nothing"
    SAYS_HALF = "says half"  # of a verdict
    FAILS = "fails"  # with an exit code, and without a verdict


class Comeback(StrEnum):
    """The ways in which a machine comes back from a reboot."""

    ANEW = "anew"
    NEVER = "never"
    SAME_BOOT = "same boot"  # the agent is started again, and the machine was not
    TWICE = "twice"  # it goes down once more when it has joined


@dataclass(frozen=True, slots=True)
class Answered:
    """A check that was carried out: what it told, in which boot, and what was true then."""

    result: CheckResult
    boot_id: str
    is_well: bool


class Health:
    """``ailments`` are the broken devices by index. ``check_faults`` befall the next checks,
    ``failing_resets`` so many of the next resets, ``failing_reboots`` so many of the agent's next
    reboots; ``comebacks`` are how it comes back from the next reboots, and after how many seconds.
    ``answers`` are of the checks that it carried out.

    Args:
        devices: that the machine has now.
        go_down: has the machine go down, and come back after so many seconds.
        start_anew: has the agent's process die, and start after so many seconds.
    """

    def __init__(
        self,
        timeline: Timeline,
        machine: Machine,
        rng: random.Random,
        devices: Callable[[], Collection[Device]],
        go_down: Callable[[float], None],
        start_anew: Callable[[float], None],
    ) -> None:
        self._timeline = timeline
        self._machine = machine
        self._rng = rng
        self._devices = devices
        self._go_down = go_down
        self._start_anew = start_anew
        self.ailments: dict[int, Ailment] = {}
        self.check_faults: list[CheckFault] = []
        self.failing_resets = 0
        self.failing_reboots = 0
        self.comebacks: list[tuple[Comeback, float]] = []
        self.answers: dict[LedgerKey, Answered] = {}
        self.resets = 0
        self.reboots = 0

    @property
    def is_well(self) -> bool:
        return not self.ailments

    def break_device(self, index: int, ailment: Ailment) -> None:
        """Have a device be broken from now on."""
        self.ailments[index] = ailment

    def mend(self, index: int) -> None:
        """Have a device be whole again, by itself."""
        self.ailments.pop(index, None)

    def be_well(self) -> None:
        """All is mended, and nothing goes wrong any more."""
        self.ailments.clear()
        self.check_faults.clear()
        self.comebacks.clear()
        self.failing_resets = self.failing_reboots = 0

    def course_of(self, start: Start, usual: Callable[[Start], Run]) -> Run:
        """The course of a kernel: of a service, or of work, which fails on a broken device."""
        service = start.template.service
        if service is None:
            run = usual(start)
            is_hit = any(share.index in self.ailments for share in start.shares)
            if not is_hit or run.create_failure is not None:
                return run
            return Run(seconds=min(run.seconds, 1.0), exit_code=1, creating_s=run.creating_s)
        match service.name:
            case ServiceName.CHECK:
                return self._check(service, (start.kernel, start.generation))
            case ServiceName.RESET:
                fails = self.failing_resets > 0
                return Run(seconds=RESET_S, exit_code=int(fails))
            case ServiceName.REBOOT:
                return Run(seconds=ORDER_S, exit_code=int(self.failing_reboots > 0))

    def carry_out(self, kernel: Kernel) -> None:
        """Do what a service does by its end; a machine that reboots takes the kernel with it, or
        has it end first."""
        service = kernel.start.template.service
        if service is None or service.name is ServiceName.CHECK:
            return
        if service.name is ServiceName.RESET:
            if kernel.run.exit_code:
                self.failing_resets = max(0, self.failing_resets - 1)
            else:
                self.resets += 1
                self._cure(Heal.RESET, service.devices)
        elif kernel.run.exit_code:
            self.failing_reboots = max(0, self.failing_reboots - 1)
        elif self._rng.random() < 0.5:
            self._reboot(Heal.REBOOT)
        else:
            self._timeline.after(ORDER_S, lambda: self._reboot(Heal.REBOOT))

    def reboot_hard(self) -> None:
        """Boot anew from outside, whatever the machine is doing."""
        self._reboot(Heal.HARD_REBOOT)

    # -- checks ----------------------------------------------------------------------------------

    def _check(self, service: Service, key: LedgerKey) -> Run:
        fault = self.check_faults.pop(0) if self.check_faults else None
        verdict: Verdict | None = None
        match fault:
            case CheckFault.HANGS:
                run = Run(seconds=_HANGS_S)
            case CheckFault.HANGS_IN_KERNEL:
                run = Run(seconds=_HANGS_S, stubborn=True, outlives_kill_s=20.0)
            case CheckFault.FAILS:
                run = Run(seconds=CHECK_S, exit_code=3)
            case CheckFault.SAYS_NOTHING:
                run = Run(seconds=CHECK_S)
            case CheckFault.SAYS_HALF:
                run = Run(seconds=CHECK_S, result=dump(verdict_of(_CHECK))[:-9])
            case CheckFault.SAYS_HEALTHY:
                verdict = verdict_of(_CHECK)
            case CheckFault.SAYS_UNKNOWN:
                verdict = unknown(_CHECK, "nobody knows")
            case CheckFault.SAYS_FAULTY:
                verdict = verdict_of(_CHECK, [Finding(_CHECK, Severity.FAULT, "it lies")])
            case None:
                verdict = self._truth(service)
        if verdict is not None:
            run = Run(seconds=CHECK_S, result=dump(verdict))
        result = CheckResult.UNKNOWN if verdict is None else verdict.result
        self.answers[key] = Answered(result, self._machine.boot_id, self.is_well)
        return run

    def _truth(self, service: Service) -> Verdict:
        checked = {device.index for device in self._devices()}
        if service.devices:
            checked &= {*service.devices}
        findings = [
            Finding(_CHECK, Severity.FAULT, "it is broken", device=index, remedy=ailment.remedy)
            for index, ailment in sorted(self.ailments.items())
            if index in checked
        ]
        return verdict_of(_CHECK, findings)

    # -- boots -----------------------------------------------------------------------------------

    def _reboot(self, heal: Heal) -> None:
        comeback, seconds = self.comebacks.pop(0) if self.comebacks else (Comeback.ANEW, BOOT_S)
        if comeback is Comeback.SAME_BOOT:
            self._start_anew(seconds)
            return
        self.reboots += 1
        self._cure(heal)
        self._go_down(math.inf if comeback is Comeback.NEVER else seconds)
        if comeback is Comeback.TWICE:
            self._timeline.after(2 * seconds + 1.0, lambda: self._go_down(seconds))

    def _cure(self, heal: Heal, devices: Collection[int] = ()) -> None:
        self.ailments = {
            index: ailment
            for index, ailment in self.ailments.items()
            if ailment.cured_by is None
            or ailment.cured_by > heal
            or (devices and index not in devices)
        }
