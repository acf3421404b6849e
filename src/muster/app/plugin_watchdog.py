"""A wall clock for plug-ins. Their leash counts lines of Python; the clock catches plug-ins that
sleep, wait, or compute in the code of a library.

The alarm is a signal, which interrupts the system and a well-behaved library as well as lines of
Python. It is meant for accidents: code that blocks signals, or catches every exception for ever, is
not stopped by it.
"""

import signal
import threading
from types import FrameType

from muster.scheduling.policy import guard

LONGEST_S = 5.0
"""The longest call: several times as long as the lines that the leash allows take."""
AGAIN_S = 0.5
"""Seconds from an alarm that the plug-in has caught to the next alarm."""


class Alarm:
    """A ``guard.Watchdog``; it watches calls in the main thread only."""

    def __init__(self) -> None:
        self.armed = False

    def arm(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self.armed = True
            signal.setitimer(signal.ITIMER_REAL, LONGEST_S, AGAIN_S)

    def disarm(self) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.setitimer(signal.ITIMER_REAL, 0)

    def rings(self, _signum: int, _frame: FrameType | None) -> None:
        if self.armed:
            raise guard.TooLate(f"ran for more than {LONGEST_S:g} s in one call")


def watch_plugins() -> None:
    """Watch the plug-ins of this process from now on; to be called in its main thread."""
    alarm = Alarm()
    signal.signal(signal.SIGALRM, alarm.rings)
    guard.watchdog = alarm
