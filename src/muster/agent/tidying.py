"""Removing the files of ended kernels from time to time, and remembering why."""

import logging
import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path

from muster.agent.config import AgentConfig
from muster.agent.discovery import kept_scratch_max_bytes
from muster.agent.removed_outputs import RemovedOutputs
from muster.agent.retention import (
    AboveShare,
    IsLive,
    Leftovers,
    above_share,
    left_by_kernels,
    owner_of_log,
    owner_of_scratch,
    remove_logs,
    scratch_bytes,
    too_old,
)
from muster.agent.scratch_sizes import ScratchSizes
from muster.core.reasons.of_files import (
    OutputAboveShare,
    OutputTooOld,
    Removal,
    ScratchAboveShare,
    ScratchTooOld,
)
from muster.core.resources import AmountUnit
from muster.wire.messages import FileRemoval, KernelKey

log = logging.getLogger(__name__)

REMOVED_AT_ONCE = 200
"""Scratch directories that are removed by one process."""


class Tidying:
    """Looks for files of ended kernels that are not kept any longer.

    Args:
        config: the agent's limits, and its directory.
        removed: remembers which outputs were removed.
        is_live: whether a kernel may still write.

    Attributes:
        removals: what the last run removed, or has the supervisor remove, and why.
    """

    def __init__(self, config: AgentConfig, removed: RemovedOutputs, is_live: IsLive) -> None:
        self._config = config
        self._logs = config.directory / "logs"
        self._removed = removed
        self._is_live = is_live
        self._sizes = ScratchSizes()
        self.removals: list[FileRemoval] = []

    def run(self, places: Sequence[Path], now: float) -> list[tuple[KernelKey, tuple[Path, ...]]]:
        """Remove the logs and the scratch directories above their owners' shares. The answer is the
        kernels all of whose files the supervisor is to remove, each with the ``places`` of other
        users that have some.

        Args:
            now: in seconds since the epoch.

        Raises:
            OSError: a directory cannot be read.
        """
        at = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
        leftovers = left_by_kernels(self._config.directory, places)
        old = too_old(leftovers, now, self._config.logs_max_age_s, self._is_live)
        gone = set(old)
        young = {key: each for key, each in leftovers.items() if key not in gone}
        kept_s = self._config.logs_max_age_s
        of_output: dict[KernelKey, Removal] = {
            key: OutputTooOld(at=at, kept_s=kept_s) for key in old if leftovers[key].has_log
        }
        of_output |= self._tidy_logs(young, at)
        of_scratch: dict[KernelKey, Removal] = {
            key: ScratchTooOld(at=at, kept_s=kept_s)
            for key in old
            if leftovers[key].scratch and not leftovers[key].has_log
        }
        of_scratch |= self._tidy_scratch(young, at)
        told = chain(of_output.items(), of_scratch.items())
        self.removals = [FileRemoval(*key, why) for key, why in told]
        if of_output:
            self._removed.note(of_output)
        return [(key, tuple(leftovers[key].places)) for key in old]

    def _tidy_logs(self, young: Leftovers, at: str) -> dict[KernelKey, Removal]:
        """Remove the logs above their owners' shares; the answer is why."""
        owner_of = partial(owner_of_log, self._logs)
        above = above_share(young, self._config.logs_max_bytes, owner_of, self._is_live)
        reasons = {each.key: _why(OutputAboveShare, each, at) for each in above}
        if above:
            self._removed.note(reasons)  # before they are gone
            log.info("removing %d logs of owners with more than their share", len(above))
            noted = {key for key, each in young.items() if each.scratch}
            remove_logs(self._logs, reasons, noted)
        return reasons

    def _tidy_scratch(self, young: Leftovers, at: str) -> dict[KernelKey, Removal]:
        """Remove the scratch directories above their owners' shares; the answer is why."""
        self._sizes.measure(young, self._is_live)
        room_bytes = kept_scratch_max_bytes(self._config)
        owner_of = partial(owner_of_scratch, self._logs, young)
        above = above_share(young, room_bytes, owner_of, self._is_live, scratch_bytes)
        if above:
            log.info("removing scratch of %d kernels of owners with more than a share", len(above))
            _remove(chain.from_iterable(young[each.key].scratch for each in above))
        return {each.key: _why(ScratchAboveShare, each, at) for each in above}


def _why(
    kind: type[OutputAboveShare] | type[ScratchAboveShare], above: AboveShare, at: str
) -> Removal:
    return kind(at=at, used=above.used_bytes, limit=above.share_bytes, unit=AmountUnit.BYTES)


def _remove(scratch: Iterable[Path]) -> None:
    """Remove trees, which may be deeper than this process could go; what cannot be removed now is
    found again."""
    paths = [str(path) for path in scratch]
    for first in range(0, len(paths), REMOVED_AT_ONCE):
        some = paths[first : first + REMOVED_AT_ONCE]
        ended = subprocess.run(["rm", "-rf", "--", *some], stderr=subprocess.DEVNULL, check=False)
        if ended.returncode:
            log.warning("scratch of ended kernels cannot be removed from %s", Path(some[0]).parent)
