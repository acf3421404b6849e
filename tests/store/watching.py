"""One who follows the ledger, and notes what it is told."""

from muster.core.resources import DeviceShare
from muster.store.records import Allocation


class Watch:
    def __init__(self) -> None:
        self.told: list[str] = []

    def allocated(self, allocation: Allocation) -> None:
        self.told.append("allocated")

    def charged(
        self, allocation: Allocation, before: tuple[DeviceShare, ...] | None, now: float
    ) -> None:
        self.told.append("charged")

    def released(self, allocation: Allocation, now: float) -> None:
        self.told.append("released")
