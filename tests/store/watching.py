"""One who follows the ledger, and notes what it is told."""

from muster.core.resources import DeviceShare
from muster.store.records import Allocation


class Watch:
    def __init__(self) -> None:
        self.told: list[str] = []

    def held(self, row: Allocation) -> None:
        self.told.append("held")

    def charged(self, row: Allocation, before: tuple[DeviceShare, ...] | None, now: float) -> None:
        self.told.append("charged")

    def released(self, row: Allocation, now: float) -> None:
        self.told.append("released")
