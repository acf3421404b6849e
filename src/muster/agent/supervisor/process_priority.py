"""The priority of the processes that start kernels and see their ends."""

# os and not pathlib: see the docstring of the package.
# ruff: noqa: PTH123, PTH208

import os
from contextlib import suppress

_NICE = -10


def raise_priority() -> None:
    """Raise this process's priority, to be served while kernels take the whole machine. Kernels do
    not inherit it; not every user may do it."""
    raise_threads()
    # Where sessions are scheduled as groups, the group's priority counts.
    with suppress(OSError), open("/proc/self/autogroup", "w") as autogroup:
        autogroup.write(str(_NICE))


def raise_threads() -> None:
    """Raise the priority of all threads of this process. Threads inherit it as little as kernels
    do, so those that have begun since the last call are at the usual one."""
    with suppress(OSError):
        for thread in map(int, os.listdir("/proc/self/task")):
            with suppress(OSError):  # it has ended
                _raise_thread(thread)


def _raise_thread(thread: int) -> None:
    if os.getpriority(os.PRIO_PROCESS, thread) == 0:
        policy = os.SCHED_OTHER | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(thread, policy, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, thread, _NICE)
