"""The time of a hollow controller, whose machine may have another time of day than the world."""

from muster.core.clock import VirtualClock
from muster.store.store import Store


class ControllerClock:
    """The time of a controller in the world's: it goes on from the moment that its store tells.

    Args:
        ahead_s: by how much the time of day on its machine is wrong when it starts.
    """

    def __init__(self, world: VirtualClock, store: Store, boot_id: str, ahead_s: float) -> None:
        self._world = world
        now = world.now()
        self.ahead_s = store.resume_clock(boot_id, world.boot_s(), now + ahead_s) - now

    def now(self) -> float:
        return self._world.now() + self.ahead_s

    def boot_s(self) -> float:
        return self._world.boot_s()
