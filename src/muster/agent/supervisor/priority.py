"""The priority of the processes that start kernels and see their ends."""

# os and not pathlib: see the docstring of the package.
# ruff: noqa: PTH123

import os
from contextlib import suppress

_NICE = -10


def raise_priority() -> None:
    """Raise this process's priority, to be served while kernels take the whole machine. Kernels do
    not inherit it; not every user may do it."""
    with suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, 0) == 0:
            policy = os.SCHED_OTHER | os.SCHED_RESET_ON_FORK
            os.sched_setscheduler(0, policy, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    # Where sessions are scheduled as groups, the group's priority counts.
    with suppress(OSError), open("/proc/self/autogroup", "w") as autogroup:
        autogroup.write(str(_NICE))
