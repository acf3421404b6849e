"""The reader of the kernel's log, which yields the errors of GPUs in it (source: kmsg)."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from muster.core.errors import MusterError
from muster.core.health.kernel_log import (
    MAX_RECORD,
    LogPosition,
    XidEvent,
    is_news,
    parse_error,
    parse_record,
)

KERNEL_LOG = Path("/dev/kmsg")
MAX_RECORDS = 20_000
"""Records that one call reads, at most: more than the largest usual buffer of a kernel holds."""


class NoKernelLog(MusterError):
    """The kernel's log cannot be read on this machine."""


class KernelLog:
    """The kernel's log from a place on. It never blocks; its descriptor can be waited for.

    Args:
        boot: the id of the present boot.
        read_to: the place up to which an earlier process read it; None for the log's beginning.
        began_s: when the boot began on the kernel's clock (see ``is_news``).
        read: reads from a descriptor.

    Raises:
        NoKernelLog: it is not there, or may not be read.
    """

    def __init__(
        self,
        boot: str,
        read_to: LogPosition | None = None,
        *,
        path: Path = KERNEL_LOG,
        began_s: float = 0.0,
        read: Callable[[int, int], bytes] = os.read,
    ) -> None:
        self._boot = boot
        self._began_s = began_s
        self._read = read
        self._rest = b""
        self.position = read_to
        """The place up to which it was read, for the next process."""
        self.overruns = 0
        """How often records were overwritten before they could be read."""
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise NoKernelLog(f"{path} cannot be read: {error.strerror}") from None

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)

    def events(self, limit: int = MAX_RECORDS) -> list[XidEvent]:
        """The errors in records that were not read yet; ``limit`` records are read at most.

        Raises:
            NoKernelLog: reading fails.
        """
        found: list[XidEvent] = []
        for _ in range(limit):
            try:
                data = self._read(self._descriptor, MAX_RECORD)
            except BlockingIOError:
                break
            except InterruptedError:
                continue
            except OSError as error:
                if error.errno == errno.EPIPE:  # the next read begins at the oldest record left
                    self.overruns += 1
                    continue
                raise NoKernelLog(f"the kernel's log cannot be read: {error.strerror}") from None
            if not data:
                break
            # The kernel gives one record each time; a file may give many, and half of one.
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._rest = self._rest[-MAX_RECORD:]
            found += (event for line in lines if (event := self._event(line)) is not None)
        return found

    def _event(self, line: bytes) -> XidEvent | None:
        record = parse_record(line)
        if record is None or not is_news(record, self._boot, self.position, self._began_s):
            return None
        self.position = LogPosition(self._boot, record.sequence)
        return parse_error(record)
