"""A wall clock beside the leash of plug-ins, for what the leash cannot count: plug-ins that sleep,
wait, or compute in a library's code.

The alarm is a signal, which interrupts what the system or a well-behaved library does as well as
lines of Python. It is for accidents: code that asks for no signals, or catches everything for ever,
is not stopped by it.
"""

import signal
import threading
from types import FrameType

from muster.scheduling import guard

LONGEST_S = 5.0
"""Of one call: some times what the leash allows in lines."""
AGAIN_S = 0.5
"""When an alarm that the plug-in has caught comes again."""


class Alarm:
    """Fills ``guard.Watchdog``; calls in other threads than the main one are not watched."""

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
