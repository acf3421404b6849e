"""Ended kernels whose logs or scratch directories are to be removed.

Both go by their age. Both also go by their size, each by its own: an owner has an equal share of
the room for logs, and of that for scratch directories, and whoever has more than that loses the
oldest of its own (design: Shares).

Where the agent is not root, kernels can write into the directory of scratch directories. So only
entries with names that a kernel can have are looked at there, a bounded number of them.
"""

import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from muster.core.ids import KernelId
from muster.wire.messages import KernelKey

MAX_ENTRIES_OF_ONE = 100_000
"""Entries of a user's directory that are looked at, at most."""

_BLOCK_BYTES = 512  # the unit of st_blocks
_NAME = re.compile(
    r"([A-Za-z0-9_][A-Za-z0-9._-]{0,127}?)\.([0-9]{1,9})"
    r"(\.log(?:\.1|\.start|\.owner)?|\.err(?:\.1|\.start)?)?"
)
_OWNER_ENDING = ".log.owner"
_LOG_ENDINGS = (".log", ".log.1", ".log.start", ".err", ".err.1", ".err.start")

IsLive = Callable[[KernelKey], bool]


@dataclass(slots=True)
class Leftover:
    """Files that a kernel left.

    Args:
        written_at: when they were last written, in seconds since the epoch.
        log_bytes: the space that its log takes.
        has_log: whether there is a log.
        places: the users' places in which some of them lie.
        scratch: its scratch directories; of several, in different places, each counts.
        scratch_bytes: the space that they take, as far as it was measured.
        scratch_uid: the user to whom they belong.
    """

    written_at: float = 0.0
    log_bytes: int = 0
    has_log: bool = False
    places: list[Path] = field(default_factory=list)
    scratch: list[Path] = field(default_factory=list)
    scratch_bytes: int = 0
    scratch_uid: int = -1


Leftovers = dict[KernelKey, Leftover]


class AboveShare(NamedTuple):
    """Files of a kernel to be removed because those of its owner took ``used_bytes``, more than
    ``share_bytes``."""

    key: KernelKey
    used_bytes: int
    share_bytes: int


def left_by_kernels(directory: Path, places: Sequence[Path]) -> Leftovers:
    """The files of kernels, ended or not.

    Args:
        directory: the agent's, with ``logs`` and ``kernels`` in it.
        places: directories with scratch directories of other users.

    Raises:
        OSError: a directory cannot be read.
    """
    leftovers: Leftovers = {}
    for key, ending, status in _in(directory / "logs"):
        leftover = _note(leftovers, key, status)
        leftover.log_bytes += status.st_blocks * _BLOCK_BYTES
        leftover.has_log |= ending != _OWNER_ENDING
    for key, _, status in _in(directory / "kernels"):
        _note_scratch(_note(leftovers, key, status), directory / "kernels", key, status)
    for place in places:
        for key, _, status in _in(place, MAX_ENTRIES_OF_ONE):
            leftover = _note(leftovers, key, status)
            leftover.places.append(place)
            _note_scratch(leftover, place, key, status)
    return leftovers


def too_old(leftovers: Leftovers, now: float, max_age_s: float, is_live: IsLive) -> list[KernelKey]:
    """Kernels all of whose files are to be removed, because they were last written more than
    ``max_age_s`` ago; the oldest first. Live kernels keep their files.

    Args:
        now: in seconds since the epoch, as files have it.
    """
    old = [key for key, each in leftovers.items() if each.written_at <= now - max_age_s]
    old.sort(key=lambda key: leftovers[key].written_at)
    return [key for key in old if not is_live(key)]


def log_bytes(leftover: Leftover) -> int:
    """The space that a kernel's log takes."""
    return leftover.log_bytes


def scratch_bytes(leftover: Leftover) -> int:
    """The space that a kernel's scratch directories take, as far as it was measured."""
    return leftover.scratch_bytes


def above_share(
    leftovers: Leftovers,
    max_bytes: int,
    owner_of: Callable[[KernelKey], str],
    is_live: IsLive,
    bytes_of: Callable[[Leftover], int] = log_bytes,
) -> list[AboveShare]:
    """The files that are to be removed where all of their kind take more than ``max_bytes``: the
    oldest of each owner that has more than its share, until it has no more than that. Files of live
    kernels count, and stay.

    Args:
        owner_of: the owner of a kernel's files; those of which it is not known count as one
            owner's.
        bytes_of: the space that a kernel's files of this kind take.
    """
    sizes = {key: bytes_of(each) for key, each in leftovers.items()}
    if sum(sizes.values()) <= max_bytes:
        return []
    of_owner: defaultdict[str, list[KernelKey]] = defaultdict(list)
    for key, size in sizes.items():
        if size:
            of_owner[owner_of(key)].append(key)
    used = {owner: sum(sizes[key] for key in keys) for owner, keys in of_owner.items()}
    share_bytes = equal_share(used.values(), max_bytes)
    found = []
    for owner, keys in of_owner.items():
        left_bytes = used[owner]
        for key in sorted(keys, key=lambda key: leftovers[key].written_at):
            if left_bytes <= share_bytes:
                break
            if not is_live(key):
                found.append(AboveShare(key, used[owner], share_bytes))
                left_bytes -= sizes[key]
    return found


def equal_share(amounts: Iterable[int], limit: int) -> int:
    """The largest amount to which all larger ones can be cut so that their sum is at most
    ``limit``: what small owners leave is the larger ones'."""
    ascending = sorted(amounts)
    for position, amount in enumerate(ascending):
        share = limit // (len(ascending) - position)
        if amount > share:
            return share
        limit -= amount
    return ascending[-1] if ascending else limit


def owner_of_log(directory: Path, key: KernelKey) -> str:
    """The owner that the supervisor noted beside a kernel's log; empty if it noted none."""
    kernel, generation = key
    try:
        return str((directory / f"{kernel}.{generation}.log.owner").readlink())
    except OSError:
        return ""


def owner_of_scratch(directory: Path, leftovers: Leftovers, key: KernelKey) -> str:
    """The owner of a kernel's scratch directories: the user to whom they belong. Where that is the
    agent's own, it is the owner that the supervisor noted beside the log in ``directory``."""
    uid = leftovers[key].scratch_uid
    return owner_of_log(directory, key) if uid == os.geteuid() else f"uid {uid}"


def remove_logs(
    directory: Path, keys: Collection[KernelKey], noted: Collection[KernelKey] = ()
) -> None:
    """Remove the logs of ended kernels from the directory of logs; what cannot be removed now is
    found again.

    Args:
        noted: kernels of which the owner stays noted, because they left scratch directories.
    """
    for key in keys:
        kernel, generation = key
        for ending in _LOG_ENDINGS if key in noted else (*_LOG_ENDINGS, _OWNER_ENDING):
            with suppress(OSError):
                (directory / f"{kernel}.{generation}{ending}").unlink()


def _note(leftovers: Leftovers, key: KernelKey, status: os.stat_result) -> Leftover:
    leftover = leftovers.setdefault(key, Leftover())
    leftover.written_at = max(leftover.written_at, status.st_mtime)
    return leftover


def _note_scratch(leftover: Leftover, place: Path, key: KernelKey, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        leftover.scratch.append(place / f"{key[0]}.{key[1]}")
        leftover.scratch_uid = status.st_uid


def _in(place: Path, limit: int | None = None) -> Iterator[tuple[KernelKey, str, os.stat_result]]:
    """The kernels that left files in a directory, and of each file the ending of a log's files and
    its state; ``limit`` entries are looked at."""
    with os.scandir(place) as entries:
        for entry in islice(entries, limit):
            name = _NAME.fullmatch(entry.name)
            if name is None:
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield (KernelId(name[1]), int(name[2])), name[3] or "", status
