"""The ids of this machine and of its present boot: kernels of another boot are proven gone (design:
The ledger)."""

import os
import uuid
from pathlib import Path

from muster.core.errors import MusterError

MACHINE_ID = Path("/etc/machine-id")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MEMORY_DIRECTORY = Path("/dev/shm")  # forgets all when the machine, or its container, goes down


class UnknownBoot(MusterError):
    """Nothing on this machine tells one boot from another."""


def machine_id(source: Path = MACHINE_ID) -> str:
    """An id of this machine that reboots do not change; empty where the machine has none."""
    try:
        return source.read_text().strip()
    except (OSError, ValueError):
        return ""


def boot_id(source: Path = BOOT_ID, memory_directory: Path = MEMORY_DIRECTORY) -> str:
    """The machine's boot id, or one that is kept in memory only where /proc has none.

    Raises:
        UnknownBoot: the machine has neither; a guess could declare a running kernel dead.
    """
    try:
        return source.read_text().strip()
    except OSError:
        pass
    path = memory_directory / f"muster-boot-id-{os.getuid()}"
    try:
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(str(uuid.uuid4()))
        try:
            os.link(fresh, path)  # appears whole, and the first process to link wins
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
        return path.read_text()
    except OSError as error:
        raise UnknownBoot(
            f"this system has neither {source} nor a writable {memory_directory}: {error.strerror}"
        ) from None
