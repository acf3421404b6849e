"""The kernel's log as it is read."""

import errno
import os
from pathlib import Path

import pytest

from muster.agent.health.kmsg import KERNEL_LOG, KernelLog, NoKernelLog
from muster.core.health.kernel_log import LogPosition

BOOT = "boot-a"
XID = b"4,%d,%d,-;NVRM: Xid (PCI:0000:3b:00): %d, pid=7, name=python, words\n"


def written(path: Path, *records: bytes) -> Path:
    with path.open("ab") as file:
        file.write(b"".join(records))
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written(
        tmp_path / "kmsg",
        b"6,1,1000,-;usb 1-1: new device\n SUBSYSTEM=usb\n DEVICE=c189:1\n",
        XID % (2, 5_000_000, 31),
        b"14,3,6000000,-;NVRM: Xid (PCI:0000:3b:00): 79, a process wrote this\n",
        XID % (4, 7_000_000, 95),
    )


def numbers(reader: KernelLog) -> list[tuple[int, int]]:
    return [(each.sequence, each.number) for each in reader.events()]


def test_xids_are_found_once_and_later_ones_when_they_come(log: Path) -> None:
    reader = KernelLog(BOOT, path=log)
    assert numbers(reader) == [(2, 31), (4, 95)]
    assert numbers(reader) == []
    written(log, XID % (5, 8_000_000, 48))
    assert numbers(reader) == [(5, 48)]
    assert reader.position == LogPosition(BOOT, 5)
    reader.close()


def test_next_process_goes_on_where_the_last_one_was(log: Path) -> None:
    reader = KernelLog(BOOT, LogPosition(BOOT, 2), path=log)
    assert numbers(reader) == [(4, 95)]
    reader.close()


def test_position_of_another_boot_hides_nothing(log: Path) -> None:
    reader = KernelLog(BOOT, LogPosition("boot-0", 900), path=log)
    assert numbers(reader) == [(2, 31), (4, 95)]
    reader.close()


def test_records_from_before_the_boot_are_passed_over(log: Path) -> None:
    reader = KernelLog(BOOT, path=log, began_s=6.0)
    assert numbers(reader) == [(4, 95)]
    reader.close()


def test_half_a_record_waits_for_its_end(log: Path) -> None:
    reader = KernelLog(BOOT, LogPosition(BOOT, 4), path=log)
    whole = XID % (5, 8_000_000, 79)
    written(log, whole[:30])
    assert numbers(reader) == []
    written(log, whole[30:])
    assert numbers(reader) == [(5, 79)]
    reader.close()


def test_overrun_is_counted_and_reading_goes_on(log: Path) -> None:
    """As the kernel answers: one record each time, EPIPE once when records were overwritten."""
    answers: list[bytes | OSError] = [
        XID % (2, 5_000_000, 31),
        BrokenPipeError(errno.EPIPE, "overwritten"),
        XID % (900, 9_000_000, 95),
        BlockingIOError(errno.EAGAIN, "no more"),
    ]

    def read(_: int, __: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    reader = KernelLog(BOOT, path=log, read=read)
    assert numbers(reader) == [(2, 31), (900, 95)]
    assert reader.overruns == 1
    assert answers == []
    reader.close()


def test_log_that_fails_or_is_not_there_is_told(tmp_path: Path, log: Path) -> None:
    def fail(_: int, __: int) -> bytes:
        raise OSError(errno.EINVAL, "Invalid argument")

    reader = KernelLog(BOOT, path=log, read=fail)
    with pytest.raises(NoKernelLog, match="cannot be read: Invalid argument"):
        reader.events()
    reader.close()
    with pytest.raises(NoKernelLog, match="absent cannot be read: No such file"):
        KernelLog(BOOT, path=tmp_path / "absent")


@pytest.mark.skipif(not os.access(KERNEL_LOG, os.R_OK), reason="the kernel's log is not readable")
def test_kernels_own_log_is_read_without_waiting() -> None:
    reader = KernelLog(BOOT)
    reader.events()
    assert reader.position is not None
    before = reader.position.sequence
    reader.events()
    assert reader.position.sequence >= before
    reader.close()
