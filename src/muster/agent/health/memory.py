"""The memory of the watch of a machine's health, kept in the agent's directory over reboots.

Times of its Xids are on a clock that goes on over reboots, so that what comes again within a day is
known to. The file is written whole or not at all; a damaged one counts as none.
"""

import logging
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from muster.core.health.kernel_log import XidEvent
from muster.core.health.xid import MAX_REMEMBERED
from muster.core.resources import MAX_DEVICES
from muster.files import write_whole
from muster.wire.messages import Sighting

log = logging.getLogger(__name__)

FILE = "health.json"
MAX_BYTES = 8 << 20
MAX_GPUS = MAX_DEVICES
MAX_STANDING = 256
LONGEST_AWAY_S = 30 * 86_400.0
"""Seconds that a machine may have been off, at most: so much the clock that goes on is put forward
by a time of day that jumped."""


@dataclass(slots=True)
class WatchMemory:
    """
    Args:
        boot: the boot in which it was written last.
        began_s: when that boot began, on the clock that goes on.
        clock_s: that clock when it was written last.
        time_s: the time of day then.
        read_to: the number of the last record of the kernel's log that was dealt with in that boot.
        xids: the Xids of the last day by the addresses of their GPUs, their times on that clock.
        gpus: the addresses of the GPUs that were ever there, by their UUIDs, until they are given
            up.
        missing: the boots in which GPUs were first seen to be missing, by their UUIDs.
        standing: when findings that still hold were told, on that clock, by their keys.
        last_seq: the number of the last sighting.
        untold: the sightings that the controller has not noted.
    """

    boot: str = ""
    began_s: float = 0.0
    clock_s: float = 0.0
    time_s: float = 0.0
    read_to: int | None = None
    xids: dict[str, tuple[XidEvent, ...]] = field(default_factory=dict)
    gpus: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    standing: dict[str, float] = field(default_factory=dict)
    last_seq: int = 0
    untold: tuple[Sighting, ...] = ()

    def enter(self, boot: str, boot_s: float, time_s: float) -> None:
        """Go on in a boot that began ``boot_s`` seconds ago, at this time of day. Nothing of
        another boot stands any more, and its log's numbers mean nothing."""
        if self.boot == boot:
            return
        away_s = min(max(time_s - self.time_s, 0.0), LONGEST_AWAY_S) if self.boot else 0.0
        # No boot begins before the last moment that is known of the one before it.
        self.began_s = max(self.clock_s + away_s - boot_s, self.clock_s)
        self.boot, self.read_to, self.standing = boot, None, {}
        self.note_time(boot_s, time_s)

    def note_time(self, boot_s: float, time_s: float) -> None:
        """Take note of the time, so that the next boot begins after it."""
        self.clock_s = self.began_s + boot_s
        self.time_s = time_s

    def shrink(self) -> None:
        """Bring everything within its limits, the newest being kept."""
        self.xids = {
            address: events[-MAX_REMEMBERED:]
            for address, events in list(self.xids.items())[-MAX_GPUS:]
        }
        self.gpus = dict(list(self.gpus.items())[-MAX_GPUS:])
        self.missing = {uuid: boot for uuid, boot in self.missing.items() if uuid in self.gpus}
        self.standing = dict(list(self.standing.items())[-MAX_STANDING:])


def load_memory(directory: Path, time_s: float) -> WatchMemory:
    """The memory in an agent's directory; a fresh one where there is none that can be read. The
    numbers of a fresh one's sightings are above all that were used before, as the time of day is.
    """
    path = directory / FILE
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) <= MAX_BYTES:
            memory = msgspec.json.decode(data, type=WatchMemory)
            memory.shrink()
            return memory
        log.warning("%s is too large, and is not read", path)
    except FileNotFoundError:
        pass
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        log.warning("%s cannot be read, and is begun anew: %s", path, error)
    return WatchMemory(last_seq=max(int(1000 * time_s), 0))


def encoded(memory: WatchMemory) -> bytes:
    """The memory as it is written."""
    memory.shrink()
    return msgspec.json.encode(memory)


def write_memory(directory: Path, data: bytes) -> None:
    """Write an encoded memory, whole or not at all. May take as long as the disk hangs.

    Raises:
        OSError: it cannot be written.
    """
    write_whole(directory / FILE, data)
