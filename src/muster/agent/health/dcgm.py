"""The check by NVIDIA's DCGM, where it is installed."""

import shutil
from collections.abc import Mapping

from muster.agent.health.check import CheckedMachine, HealthCheck
from muster.agent.health.running import Command
from muster.core.health.check_run import CheckRun
from muster.core.health.dcgm import CHECK, PROGRAM, read_diag
from muster.core.health.verdict import Verdict
from muster.core.resources import is_partition

REPORT_BYTES = 2 << 20
"""Bytes of a report, at most: one of sixteen GPUs at level 4 takes some 200 KiB."""
_LIMITS_S: Mapping[int, float] = {1: 300.0, 2: 900.0, 3: 3600.0, 4: 4 * 3600.0}
"""Seconds by level: about three times as long as NVIDIA says that a level takes."""


class DcgmCheck(HealthCheck):
    """``dcgmi diag`` at the machine's level."""

    name = CHECK
    limit_s = _LIMITS_S[2]
    level = 2

    def applies(self, machine: CheckedMachine) -> bool:
        installed = shutil.which(PROGRAM) is not None
        has_partitions = any(is_partition(each.model) for each in machine.devices)
        return (  # it tests whole GPUs alone, by their numbers
            installed and bool(machine.devices) and not has_partitions and super().applies(machine)
        )

    def time_limit_s(self, machine: CheckedMachine) -> float:
        return _LIMITS_S.get(machine.level, self.limit_s)

    def command(self, machine: CheckedMachine) -> Command:
        gpus = ",".join(str(each.index) for each in machine.devices)
        arguments = (PROGRAM, "diag", "-r", str(machine.level), "-j", "-i", gpus)
        return Command(arguments, kept_bytes=REPORT_BYTES)

    def read(self, run: CheckRun, machine: CheckedMachine) -> Verdict:
        gpus = [each.index for each in machine.devices]
        return read_diag(run, level=machine.level, gpus=gpus)
