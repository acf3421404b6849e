"""Removing the files of ended kernels from time to time, and remembering why."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from muster.agent.config import AgentConfig
from muster.agent.removed_outputs import RemovedOutputs
from muster.agent.retention import (
    IsLive,
    above_share,
    left_by_kernels,
    owner_of_log,
    remove_logs,
    too_old,
)
from muster.core.reasons import Reason, ReasonCode, reason
from muster.core.resources import Unit
from muster.wire.messages import KernelKey

log = logging.getLogger(__name__)


class Tidying:
    """Looks for files of ended kernels that are not kept any longer.

    Args:
        config: the agent's limits, and its directory.
        removed: remembers which outputs were removed.
        is_live: whether a kernel may still write.
    """

    def __init__(self, config: AgentConfig, removed: RemovedOutputs, is_live: IsLive) -> None:
        self._config = config
        self._removed = removed
        self._is_live = is_live

    def run(self, places: Sequence[Path], now: float) -> list[tuple[KernelKey, tuple[Path, ...]]]:
        """Remove the logs above their owners' shares. The answer is the kernels all of whose files
        the supervisor is to remove, each with the ``places`` of other users that have some.

        Args:
            now: in seconds since the epoch.

        Raises:
            OSError: a directory cannot be read.
        """
        config, logs = self._config, self._config.directory / "logs"
        at = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
        leftovers = left_by_kernels(config.directory, places)
        old = too_old(leftovers, now, config.logs_max_age_s, self._is_live)
        reasons: dict[KernelKey, Reason] = {}
        for key in old:
            if leftovers[key].has_log:
                numbers = {"at": at, "kept_s": config.logs_max_age_s}
                reasons[key] = reason(ReasonCode.OUTPUT_TOO_OLD, **numbers)
        gone = set(old)
        young = {key: each for key, each in leftovers.items() if key not in gone}
        above = above_share(
            young, config.logs_max_bytes, partial(owner_of_log, logs), self._is_live
        )
        for key, used_bytes, share_bytes in above:
            sizes = {"used": used_bytes, "limit": share_bytes, "unit": Unit.BYTES}
            reasons[key] = reason(ReasonCode.OUTPUT_ABOVE_SHARE, at=at, **sizes)
        if reasons:
            self._removed.note(reasons)
        if above:
            log.info("removing %d logs of owners with more than their share", len(above))
            remove_logs(logs, [each.key for each in above])
        return [(key, tuple(leftovers[key].places)) for key in old]
