"""The small check that comes along: memory is written and read back, and copied within itself.

``python -m muster.agent.health.bundled`` tests the GPUs of ``CUDA_VISIBLE_DEVICES`` by torch, where
that is installed, else the host's memory by NumPy, which it says. It prints the report that
``docs/health.md`` describes, and figures on standard error.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from muster.agent.health.check import CheckedMachine, HealthCheck, visible
from muster.agent.health.running import Command
from muster.core.health.check_run import CheckRun
from muster.core.health.operator import read_report, write_report
from muster.core.health.verdict import Finding, Severity, Verdict, verdict_of
from muster.core.resources import format_bytes
from muster.core.text import count

CHECK = "bundled"
HOST_BYTES = 32 << 20
"""Bytes of the host's memory that are tested."""
GPU_SHARE = 0.8
"""The share of a GPU's free memory that is tested."""
BLOCK_BYTES = 256 << 20
"""Bytes of a GPU's memory that are allocated at a time."""
COPIES = 4
"""Copies whose time is taken; the fastest counts."""
SLOW_SHARE = 0.5
"""A GPU that copies at less than this share of what the machine's GPUs do in the median is slow."""
PATTERNS = (0x00, 0xFF, 0x55, 0xAA)
"""Bytes that are written: each bit is 0 and 1, and differs from its neighbours or not."""


class Memory(Protocol):
    """Memory that is tested.

    Attributes:
        device: the GPU's index; None for the host's.
        bytes: how much is tested.
    """

    device: int | None
    bytes: int

    def fill(self, pattern: int) -> None:
        """Write a byte everywhere."""

    def wrong_bytes(self, pattern: int) -> int:
        """The number of bytes that are not the pattern."""

    def copy_s(self) -> float:
        """The seconds that copying one half of it over the other takes."""


class HostMemory:
    """Memory of the host, by NumPy."""

    device: int | None = None

    def __init__(self, size_bytes: int = HOST_BYTES) -> None:
        import numpy as np  # the agent's own process has no use for it

        self.bytes = size_bytes
        self._numpy = np
        self._cells = np.empty(size_bytes, dtype=np.uint8)

    def fill(self, pattern: int) -> None:
        self._cells.fill(pattern)

    def wrong_bytes(self, pattern: int) -> int:
        return int(self._numpy.count_nonzero(self._cells != pattern))

    def copy_s(self) -> float:
        half = self.bytes // 2
        began_s = time.perf_counter()
        self._numpy.copyto(self._cells[half : 2 * half], self._cells[:half])
        return time.perf_counter() - began_s


class GpuMemory:
    """Memory of a GPU, by torch.

    Args:
        ordinal: of the GPU among those that are visible.
        device: its index.
    """

    def __init__(self, torch: Any, ordinal: int, device: int) -> None:
        self.device: int | None = device
        self._torch = torch
        self._place = torch.device("cuda", ordinal)
        free_bytes, _ = torch.cuda.mem_get_info(self._place)
        blocks = max(int(free_bytes * GPU_SHARE) // BLOCK_BYTES, 1)
        self._blocks = [
            torch.empty(BLOCK_BYTES, dtype=torch.uint8, device=self._place) for _ in range(blocks)
        ]
        self.bytes = blocks * BLOCK_BYTES

    def fill(self, pattern: int) -> None:
        for block in self._blocks:
            block.fill_(pattern)
        self._torch.cuda.synchronize(self._place)

    def wrong_bytes(self, pattern: int) -> int:
        return sum(int((block != pattern).sum().item()) for block in self._blocks)

    def copy_s(self) -> float:
        block = self._blocks[0]
        half = BLOCK_BYTES // 2
        self._torch.cuda.synchronize(self._place)
        began_s = time.perf_counter()
        block[half:].copy_(block[:half])
        self._torch.cuda.synchronize(self._place)
        return (time.perf_counter() - began_s) * self.bytes / BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class Measured:
    """The findings about one memory, and the bytes a second at which it copies; 0 where that was
    not measured."""

    device: int | None
    findings: tuple[Finding, ...]
    bytes_per_s: float = 0.0


class BundledCheck(HealthCheck):
    """Memory and its bandwidth."""

    name = CHECK
    limit_s = 300.0
    level = 2

    def command(self, machine: CheckedMachine) -> Command:
        arguments = (sys.executable, "-P", "-m", "muster.agent.health.bundled")
        return Command(arguments, environment=visible(machine))

    def read(self, run: CheckRun, machine: CheckedMachine) -> Verdict:
        return read_report(run, CHECK, f"the check {CHECK}")


def measure(memory: Memory) -> Measured:
    """Test one memory."""
    found = []
    for pattern in PATTERNS:
        memory.fill(pattern)
        if wrong := memory.wrong_bytes(pattern):
            what = f"{count(wrong, 'byte')} of {format_bytes(memory.bytes)} lost 0x{pattern:02x}"
            found.append(Finding(CHECK, Severity.FAULT, what, memory.device, test="memory"))
    fastest_s = min(memory.copy_s() for _ in range(COPIES))
    # Each byte of one half is read and written.
    speed = memory.bytes / fastest_s if fastest_s > 0 else 0.0
    return Measured(memory.device, tuple(found), speed)


def judge(measured: Sequence[Measured]) -> Verdict:
    """The verdict on memories of one machine. Speeds are compared with each other, because what is
    usual differs by model."""
    found = [finding for each in measured for finding in each.findings]
    speeds = [each.bytes_per_s for each in measured if each.bytes_per_s]
    usual = median(speeds) if len(speeds) > 1 else 0.0
    for each in measured:
        if each.bytes_per_s and each.bytes_per_s < SLOW_SHARE * usual:
            what = (
                f"it copies {each.bytes_per_s / 1e9:,.0f} GB/s, and the machine's GPUs do "
                f"{usual / 1e9:,.0f} GB/s in the median"
            )
            found.append(Finding(CHECK, Severity.FAULT, what, each.device, test="bandwidth"))
    return verdict_of(CHECK, found)


def of_gpus(torch: Any, devices: Sequence[int]) -> Iterator[Measured]:
    """Test GPUs one after the other; what torch raises is a finding.

    Args:
        devices: the indexes of the visible GPUs, in torch's order.
    """
    for ordinal, device in enumerate(devices):
        try:
            yield measure(GpuMemory(torch, ordinal, device))
        except RuntimeError as error:  # all that CUDA says comes as this
            words = str(error)
            broken = "ECC" in words or "uncorrectable" in words
            severity = Severity.FAULT if broken else Severity.UNKNOWN
            finding = Finding(CHECK, severity, "CUDA failed", device, test="memory", told=words)
            yield Measured(device, (finding,))
        torch.cuda.empty_cache()


def of_host(why: str) -> Verdict:
    """The verdict where no GPU can be tested, which it says."""
    measured = measure(HostMemory())
    _tell([measured])
    what = f"no GPU memory was tested: {why}; {format_bytes(HOST_BYTES)} of the host's memory were"
    said = Finding(CHECK, Severity.WARNING, what, test="memory")
    return verdict_of(CHECK, [*measured.findings, said])


def check(visible_devices: str) -> Verdict:
    """The verdict on the GPUs whose indexes are given, in CUDA's form."""
    try:
        import torch
    except Exception as error:  # it loads libraries of CUDA, which may be broken
        return of_host(f"torch cannot be imported ({type(error).__name__})")
    if not torch.cuda.is_available():
        return of_host("torch finds no GPU")
    devices = [int(each) for each in visible_devices.split(",") if each.strip().isdigit()]
    seen = torch.cuda.device_count()
    if len(devices) != seen:
        devices = list(range(seen))
    measured = list(of_gpus(torch, devices))
    _tell(measured)
    return judge(measured)


def _tell(measured: Sequence[Measured]) -> None:
    for each in measured:
        place = "host" if each.device is None else f"GPU {each.device}"
        sys.stderr.write(f"{place}: {each.bytes_per_s / 1e9:,.1f} GB/s\n")


def main() -> None:
    report = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints is no part of the report
    verdict = check(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    with os.fdopen(report, "w") as file:
        file.write(write_report(verdict))


if __name__ == "__main__":
    main()
