"""Which ended kernels have kept their logs and scratch directories long enough."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from muster.core.ids import KernelId
from muster.wire.messages import KernelKey

_BLOCK_BYTES = 512  # the unit of st_blocks


@dataclass(slots=True)
class _Leftover:
    """What a kernel left: when it was last written, and the space that its log takes."""

    written_at: float = 0.0
    size_bytes: int = 0


def expired(
    directory: Path,
    places: Sequence[Path],
    now: float,
    max_age_s: float,
    max_bytes: int,
    is_live: Callable[[KernelKey], bool],
) -> list[KernelKey]:
    """Kernels of which nothing is to be kept any longer: those that left something more than
    ``max_age_s`` ago, and the oldest of the rest while all logs take more than ``max_bytes``. Live
    kernels keep theirs, whatever the limits.

    Args:
        directory: the agent's, with ``logs`` and ``kernels`` in it.
        places: where scratch directories of other users are.
        now: in seconds since the epoch, as files have it.

    Raises:
        OSError: it cannot be read.
    """
    leftovers: dict[KernelKey, _Leftover] = {}
    places = (directory / "logs", directory / "kernels", *places)
    for path in chain.from_iterable(place.iterdir() for place in places):
        key = _key(path.name)
        if key is None:
            continue
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        leftover = leftovers.setdefault(key, _Leftover())
        leftover.written_at = max(leftover.written_at, status.st_mtime)
        leftover.size_bytes += status.st_blocks * _BLOCK_BYTES
    total_bytes = sum(leftover.size_bytes for leftover in leftovers.values())
    old: list[KernelKey] = []
    for key, leftover in sorted(leftovers.items(), key=lambda entry: entry[1].written_at):
        if leftover.written_at > now - max_age_s and total_bytes <= max_bytes:
            break
        if not is_live(key):
            old.append(key)
            total_bytes -= leftover.size_bytes
    return old


def _key(name: str) -> KernelKey | None:
    """The kernel of ``KERNEL.GENERATION``, with ``.log`` and more after it or not."""
    kernel, dot, generation = name.partition(".log")[0].rpartition(".")
    return (KernelId(kernel), int(generation)) if dot and generation.isdigit() else None
