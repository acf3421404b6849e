"""Launches of the last minute, which EC2 may not list yet.

They make answers more careful, and nothing depends on them: after a restart a slice that was
launched just before is found by its tags once it is listed, or as an orphan.
"""

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SliceLaunch:
    """A launch of a slice.

    Args:
        at: on the monotonic clock.
        subnet: in which it was asked for.
        ids: of the instances; None as long as there is no answer.
    """

    at: float
    subnet: str
    ids: frozenset[str] | None = None


class RecentLaunches:
    """The last launch of each slice that was launched in the last ``settle_s`` seconds, by which
    time EC2 lists everything."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._launches: dict[str, SliceLaunch] = {}
        self._lock = threading.Lock()

    def asked(self, slice_: str, subnet: str) -> SliceLaunch | None:
        """Note that a slice is being launched; the answer is what was noted of it before."""
        with self._lock:
            before = self._get(slice_)
            self._launches[slice_] = SliceLaunch(time.monotonic(), subnet)
            return before

    def answered(self, slice_: str, subnet: str, ids: Collection[str]) -> None:
        """Note the instances that a launch made."""
        with self._lock:
            self._launches[slice_] = SliceLaunch(time.monotonic(), subnet, frozenset(ids))

    def refused(self, slice_: str, before: SliceLaunch | None) -> None:
        """Note that a launch made nothing, so that what was noted ``before`` it holds."""
        with self._lock:
            if before is None:
                self._launches.pop(slice_, None)
            else:
                self._launches[slice_] = before

    def of(self, slice_: str) -> SliceLaunch | None:
        """The last launch of a slice."""
        with self._lock:
            return self._get(slice_)

    def all_listed(self, listed: Collection[str]) -> bool:
        """Whether the instances of all launches are among those that are ``listed``."""
        with self._lock:
            self._drop_settled()
            return all(
                each.ids is not None and each.ids.issubset(listed)
                for each in self._launches.values()
            )

    def _get(self, slice_: str) -> SliceLaunch | None:
        self._drop_settled()
        return self._launches.get(slice_)

    def _drop_settled(self) -> None:
        oldest = time.monotonic() - self._settle_s
        self._launches = {key: each for key, each in self._launches.items() if each.at > oldest}
