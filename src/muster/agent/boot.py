"""The ids of this machine and of its present boot: kernels of another boot are proven gone (design:
The ledger)."""

import json
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from muster.agent.supervisor import clock
from muster.core.errors import MusterError
from muster.files import write_whole

MACHINE_ID = Path("/etc/machine-id")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MEMORY_DIRECTORY = Path("/dev/shm")  # forgets all when the machine, or its container, goes down
BOOT_FILE = "boot.json"


class UnknownBoot(MusterError):
    """Nothing on this machine tells one boot from another."""


@dataclass(frozen=True, slots=True)
class Boot:
    """A boot of a machine. ``began_s`` is the moment on the boot clock of the operating system when
    the machine's own boot clock began."""

    id: str
    began_s: float = 0.0


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
        write_whole(fresh, str(uuid.uuid4()), is_synced=False)
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


def boot_within(directory: Path, given: str) -> Boot:
    """The boot of a machine that is none of its own, only processes on one: whoever starts its
    agent gives another name to each boot, and has ended all its kernels before. It began when an
    agent first heard of it, which is kept in ``BOOT_FILE``. Its id tells that of the operating
    system, too (see ``core.ids.system_boot``).

    Raises:
        UnknownBoot: the file cannot be read or written.
    """
    system = boot_id()
    id_ = f"{system}/{uuid.uuid5(uuid.NAMESPACE_OID, f'{system} {given}')}"
    path = directory / BOOT_FILE
    try:
        try:
            kept = json.loads(path.read_text())
            if kept["id"] == id_:
                return Boot(id_, float(kept["began_s"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            pass  # the first boot, or a damaged file: its boot counts as over
        boot = Boot(id_, clock.now_s())
        text = json.dumps({"id": boot.id, "began_s": boot.began_s})
        write_whole(path, text, is_synced=False)
    except OSError as error:
        raise UnknownBoot(f"cannot keep the boot in {path}: {error.strerror}") from None
    return boot
