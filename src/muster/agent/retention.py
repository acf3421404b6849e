"""Which ended kernels have kept their logs and scratch directories long enough.

A directory in which scratch directories are made is its kernels' to fill where the agent is not
root: only names that a kernel can have count there, so many at most, and what they take counts for
nobody's logs.
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
"""Entries of a user's directory that one look takes in."""

_BLOCK_BYTES = 512  # the unit of st_blocks
_NAME = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._-]{0,127}?)\.([0-9]{1,9})(?:\.log(?:\.1|\.start)?)?")


@dataclass(slots=True)
class _Leftover:
    """What a kernel left: when it was last written, the space that its log takes, and in which of
    the users' places something lies."""

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
    """Kernels of which nothing is to be kept any longer, the oldest first: those that left
    something more than ``max_age_s`` ago, and the oldest of the rest while all logs take more than
    ``max_bytes``. Live kernels keep theirs, whatever the limits. Beside each kernel are those of
    ``places`` where something of it lies.

    Args:
        directory: the agent's, with ``logs`` and ``kernels`` in it.
        places: where scratch directories of other users are.
        now: in seconds since the epoch, as files have it.

    Raises:
        OSError: it cannot be read.
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
    """The kernels that left something in a directory, when it was written, and the space it takes;
    of so many entries at most."""
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
