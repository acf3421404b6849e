"""Ended kernels whose logs and scratch directories have been kept long enough.

Where the agent is not root, kernels can write into the directory of scratch directories. So only
entries with names that a kernel can have are looked at there, a bounded number of them, and their
size does not count toward the limit of logs.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from muster.core.ids import KernelId
from muster.wire.messages import KernelKey

MAX_ENTRIES_OF_ONE = 100_000
"""Entries of a user's directory that are looked at, at most."""

_BLOCK_BYTES = 512  # the unit of st_blocks
_NAME = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._-]{0,127}?)\.([0-9]{1,9})(?:\.log(?:\.1|\.start)?)?")


@dataclass(slots=True)
class _Leftover:
    """Files that a kernel left: when they were last written, the space that its log takes, and the
    users' places in which some of them lie."""

    written_at: float = 0.0
    size_bytes: int = 0
    places: list[Path] = field(default_factory=list)


def expired(
    directory: Path,
    places: Sequence[Path],
    now: float,
    max_age_s: float,
    max_bytes: int,
    is_live: Callable[[KernelKey], bool],
) -> list[tuple[KernelKey, tuple[Path, ...]]]:
    """Kernels whose files are to be removed, the oldest first: kernels last written more than
    ``max_age_s`` ago, and the oldest others while all logs take more than ``max_bytes``. Live
    kernels keep their files, whatever the limits. Beside each kernel stand the ``places`` where
    some of its files lie.

    Args:
        directory: the agent's, with ``logs`` and ``kernels`` in it.
        places: directories with scratch directories of other users.
        now: in seconds since the epoch, as files have it.

    Raises:
        OSError: a directory cannot be read.
    """
    leftovers: dict[KernelKey, _Leftover] = {}
    for own in (directory / "logs", directory / "kernels"):
        for key, written_at, size_bytes in _in(own):
            leftover = leftovers.setdefault(key, _Leftover())
            leftover.written_at = max(leftover.written_at, written_at)
            leftover.size_bytes += size_bytes
    for place in places:
        for key, written_at, _ in _in(place, MAX_ENTRIES_OF_ONE):
            leftover = leftovers.setdefault(key, _Leftover())
            leftover.written_at = max(leftover.written_at, written_at)
            leftover.places.append(place)
    total_bytes = sum(leftover.size_bytes for leftover in leftovers.values())
    old: list[tuple[KernelKey, tuple[Path, ...]]] = []
    for key, leftover in sorted(leftovers.items(), key=lambda entry: entry[1].written_at):
        if leftover.written_at > now - max_age_s and total_bytes <= max_bytes:
            break
        if not is_live(key):
            old.append((key, tuple(leftover.places)))
            total_bytes -= leftover.size_bytes
    return old


def _in(place: Path, limit: int | None = None) -> Iterator[tuple[KernelKey, float, int]]:
    """The kernels that left files in a directory, when these were written, and the space that they
    take; ``limit`` entries are looked at."""
    with os.scandir(place) as entries:
        for entry in islice(entries, limit):
            name = _NAME.fullmatch(entry.name)
            if name is None:
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            key = (KernelId(name[1]), int(name[2]))
            yield key, status.st_mtime, status.st_blocks * _BLOCK_BYTES
