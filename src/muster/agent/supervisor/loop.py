"""The epoll loop: handlers are called when their descriptors are ready."""

import os
import select
from collections.abc import Callable

READABLE = select.EPOLLIN
WRITABLE = select.EPOLLOUT

_MAX_READY = 64  # level-triggered: descriptors that are left out are ready in the next round

Handler = Callable[[], None]


class Loop:
    """Descriptors and their handlers.

    A handler may be called although its descriptor is not ready: a descriptor that was closed
    earlier in the same round may have been opened again as another.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._first_fd = -1

    def watch(self, fd: int, handler: Handler) -> None:
        """Call `handler` whenever there is something to read.

        Raises:
            OSError: the operating system takes no further descriptor.
        """
        self._epoll.register(fd, READABLE)
        self._handlers[fd] = handler

    def watch_first(self, fd: int, handler: Handler) -> None:
        """Watch the one descriptor whose handler is called before all others in a round.

        Raises:
            OSError: the operating system takes no further descriptor.
        """
        self.watch(fd, handler)
        self._first_fd = fd

    def wait_for(self, fd: int, events: int) -> None:
        """Change the events for which a descriptor is watched; 0 pauses it."""
        self._epoll.modify(fd, events)

    def close(self, fd: int) -> None:
        """Close a watched descriptor; the operating system drops it from the epoll set."""
        del self._handlers[fd]
        os.close(fd)

    def run_once(self, timeout_s: float) -> None:
        """Wait for up to `timeout_s` and call the handler of each descriptor that is ready."""
        ready = [fd for fd, _events in self._epoll.poll(timeout_s, _MAX_READY)]
        if self._first_fd in ready:
            ready.remove(self._first_fd)
            self._handlers[self._first_fd]()
        for fd in ready:
            handler = self._handlers.get(fd)
            if handler is not None:
                handler()
