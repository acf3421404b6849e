"""Signals as a descriptor of the epoll loop, so that nothing is ever interrupted by one."""

import ctypes
import os
import signal
import sys
from collections.abc import Iterable

_SIGINFO_BYTES = 128
_SIGSET_BYTES = 128


class SignalFd:
    """The signals of this process, blocked and read from `fd` instead.

    Children must be spawned with an empty signal mask, for they would inherit this one.
    """

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        """
        Raises:
            OSError: the descriptor cannot be made.
        """
        numbers = set(numbers)
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        sigset = ctypes.create_string_buffer(_SIGSET_BYTES)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.sigemptyset(sigset)
        for number in numbers:
            libc.sigaddset(sigset, int(number))
        self.fd = libc.signalfd(-1, sigset, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "signalfd failed")

    def read(self) -> set[int]:
        """The signals that have come since the last call."""
        try:
            found = os.read(self.fd, 8 * _SIGINFO_BYTES)
        except BlockingIOError:
            return set()
        each = range(0, len(found), _SIGINFO_BYTES)
        return {int.from_bytes(found[at : at + 4], sys.byteorder) for at in each}
