"""The confirmation of a controller's time by the agents that it hears first (design: Time)."""

from collections.abc import Callable

from muster.control.agent.leases import LeaseBook
from muster.core.clock import Clock, confirmed_ahead_s

AWAITED_S = 30.0
"""How long a controller waits for agents that can confirm its time, before it decides anything:
agents look for it again within a few seconds."""


class TimeConfirmation:
    """Finds out by how much time is ahead of a controller's, which is not confirmed, and sets it.

    Nothing is decided before the wait for it is over: what is written down meanwhile would be as
    wrong as the controller's time is then.

    Args:
        clock: the controller's.
        leases: hears the agents.
        leap_s: tells by how much the time of day is ahead of ``clock``.
        set_ahead: sets ``clock`` ahead by some seconds.
    """

    def __init__(
        self,
        clock: Clock,
        leases: LeaseBook,
        leap_s: Callable[[], float],
        set_ahead: Callable[[float], None],
    ) -> None:
        self._clock = clock
        self._leases = leases
        self._leap_s = leap_s
        self._set_ahead = set_ahead
        self._until_boot_s = clock.boot_s() + AWAITED_S
        self.is_confirmed = False

    def is_over(self) -> bool:
        """Whether nothing is waited for any longer: the time is confirmed, or goes on from the last
        commit because nobody has confirmed it."""
        words = self._leases.clock_words()
        is_over = not words.awaited or self._clock.boot_s() >= self._until_boot_s
        ahead_s = confirmed_ahead_s(words, self._leap_s(), is_over)
        if ahead_s is not None:
            self._leases.advance(ahead_s, lambda: self._set_ahead(ahead_s))
            self.is_confirmed = True
        return is_over or self.is_confirmed
