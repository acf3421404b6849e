"""The followers of the ledger."""

from collections.abc import Sequence

from muster.core.resources import DeviceShare
from muster.store.records import Allocation
from muster.store.unit import LedgerWatch


class Watches:
    """All followers of the ledger, as one."""

    def __init__(self, watches: Sequence[LedgerWatch]) -> None:
        self._watches = watches

    def allocated(self, allocation: Allocation) -> None:
        for watch in self._watches:
            watch.allocated(allocation)

    def charged(
        self, allocation: Allocation, before: tuple[DeviceShare, ...] | None, now: float
    ) -> None:
        for watch in self._watches:
            watch.charged(allocation, before, now)

    def released(self, allocation: Allocation, now: float) -> None:
        for watch in self._watches:
            watch.released(allocation, now)
