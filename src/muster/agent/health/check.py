"""The interface of a health check, and how one is carried out (design: Machine health).

A check is a program: Muster's own in Python run in a process of their own too, so that a driver or
a disk that hangs delays nothing else.
"""

import logging
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from muster.agent.health.running import Command, run
from muster.agent.mig import cuda_names
from muster.core.health.check_run import CheckRun
from muster.core.health.operator import read_report
from muster.core.health.verdict import Verdict, merged, observed, unknown
from muster.core.resources import Device

log = logging.getLogger(__name__)

LEVEL = 2
"""The level of checks unless another is asked for."""
RUNNER = "muster.agent.health.alone"
"""The module that carries out a check in Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedMachine:
    """The facts that a check gets about its machine.

    Args:
        devices: the GPUs that the agent declared.
        directory: a folder of the agent's on the disk that its work uses.
        is_shared: whether kernels may run on the machine during the check.
        level: how much time checks may take: 1 seconds, 2 minutes, 3 half an hour, 4 hours.
        clock_offset_s: of the machine's clock to the controller's; None if it is not known.
        settings: limits by their names, where they differ from a check's own.
    """

    devices: tuple[Device, ...] = ()
    directory: str = "/"
    is_shared: bool = False
    level: int = LEVEL
    clock_offset_s: float | None = None
    settings: Mapping[str, float] = field(default_factory=dict)

    def setting(self, name: str, default: float) -> float:
        return self.settings.get(name, default)


class HealthCheck(ABC):
    """A check. One that comes from elsewhere is found by the name of its entry point.

    Attributes:
        name: the one of its findings.
        limit_s: seconds that it may take.
        level: from which on it is run.
        observe_only: whether its findings are warnings, whatever it says.
    """

    name: str
    limit_s: float = 60.0
    level: int = 1
    observe_only: bool = False

    def applies(self, machine: CheckedMachine) -> bool:
        """Whether there is something to be checked."""
        return self.level <= machine.level

    def time_limit_s(self, machine: CheckedMachine) -> float:
        return self.limit_s

    @abstractmethod
    def command(self, machine: CheckedMachine) -> Command:
        """The program to be run."""

    @abstractmethod
    def read(self, run: CheckRun, machine: CheckedMachine) -> Verdict:
        """The verdict of a run of it."""


class PythonCheck(HealthCheck):
    """A check that is a function in Python."""

    @abstractmethod
    def look(self, machine: CheckedMachine) -> Verdict:
        """The verdict on the machine that this process is on; may block."""

    def command(self, machine: CheckedMachine) -> Command:
        arguments = (sys.executable, "-P", "-m", RUNNER, self.name)
        return Command(arguments, msgspec.json.encode(machine))

    def read(self, run: CheckRun, machine: CheckedMachine) -> Verdict:
        return read_report(run, self.name, f"the check {self.name}")


class OperatorCheck(HealthCheck):
    """A command of the operator's, which prints the report that ``docs/health.md`` describes. It
    finds the level and the GPUs in ``MUSTER_CHECK_LEVEL`` and ``CUDA_VISIBLE_DEVICES``."""

    def __init__(
        self, name: str, arguments: tuple[str, ...], limit_s: float, *, observe_only: bool = False
    ) -> None:
        self.name = name
        self.limit_s = limit_s
        self.observe_only = observe_only
        self._arguments = arguments

    def command(self, machine: CheckedMachine) -> Command:
        return Command(self._arguments, environment=visible(machine))

    def read(self, run: CheckRun, machine: CheckedMachine) -> Verdict:
        return read_report(run, self.name, self._arguments[0])


def visible(machine: CheckedMachine) -> dict[str, str]:
    """The variables by which a program sees the machine's GPUs in the agent's order."""
    names = cuda_names(machine.devices)
    devices = [names.get(each.index, str(each.index)) for each in machine.devices]
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(devices),
        "MUSTER_CHECK_LEVEL": str(machine.level),
    }


def carry_out(check: HealthCheck, machine: CheckedMachine, at_most_s: float = math.inf) -> Verdict:
    """The verdict of one check. It blocks for little more than the check's time limit, and raises
    nothing: a check that does is unknown.

    Args:
        at_most_s: a limit of the caller's.
    """
    try:
        ran = run(check.command(machine), min(check.time_limit_s(machine), at_most_s))
        verdict = check.read(ran, machine)
    except Exception as error:  # a plug-in may raise anything
        log.exception("check %s failed", check.name)
        what = f"the check itself failed with {type(error).__name__}"
        verdict = unknown(check.name, what, str(error))
    return observed(verdict) if check.observe_only else verdict


def check_machine(machine: CheckedMachine, checks: Iterable[HealthCheck]) -> Verdict:
    """The verdict of all checks that apply, one after the other."""
    return merged([carry_out(each, machine) for each in checks if each.applies(machine)])
