"""The time of a hollow controller, whose machine may have another time of day than the world."""

from muster.control.agent.confirming import TimeConfirmation
from muster.control.agent.leases import LeaseBook
from muster.store.store import Store
from proving.hollow.virtual_clock import VirtualClock


class ControllerClock:
    """The time of a controller in the world's: it goes on from the moment that its store tells.

    Args:
        day_ahead_s: by how much the time of day on its machine is wrong when it starts.

    ``ahead_s`` is by how much the controller's time is ahead of the world's, and ``is_confirmed``
    whether it is known how much time had passed when it started.
    """

    def __init__(self, world: VirtualClock, store: Store, boot_id: str, day_ahead_s: float) -> None:
        self._world, self._store = world, store
        self._boot_id, self._day_ahead_s = boot_id, day_ahead_s
        now = world.now()
        start = store.resume_clock(boot_id, world.boot_s(), now + day_ahead_s)
        self.ahead_s = start.at_s - now
        self.is_confirmed = start.confirmed
        self._confirmation: TimeConfirmation | None = None

    def now(self) -> float:
        return self._world.now() + self.ahead_s

    def boot_s(self) -> float:
        return self._world.boot_s()

    def processor_s(self) -> float | None:
        return self._world.processor_s()

    def waits_for(self, leases: LeaseBook) -> bool:
        """Whether nothing is to be decided yet, because agents may confirm the time."""
        if self.is_confirmed:
            return False
        if self._confirmation is None:
            self._confirmation = TimeConfirmation(self, leases, self._leap_s, self._set_ahead)
        if not self._confirmation.is_over():
            return True
        self.is_confirmed = self._confirmation.is_confirmed
        if self.is_confirmed:
            self._store.confirm_clock(self._boot_id, self.boot_s(), self.now())
        return False

    def _leap_s(self) -> float:
        return self._day_ahead_s - self.ahead_s

    def _set_ahead(self, by_s: float) -> None:
        self.ahead_s += by_s
