"""Removals of ended kernels' files, of which the controller is told once."""

from collections import deque
from collections.abc import Iterable

from muster.wire.messages import FileRemoval, FilesRemoved

MAX_WAITING = 4_000
"""Removals that wait for a controller that is away; the oldest are left out first."""
AT_ONCE = 200
"""Removals in one message."""


class RemovalBox:
    """The removals that wait to be told."""

    def __init__(self) -> None:
        self._waiting: deque[FileRemoval] = deque(maxlen=MAX_WAITING)

    @property
    def has_news(self) -> bool:
        return bool(self._waiting)

    def add(self, removals: Iterable[FileRemoval]) -> None:
        """Have the controller told of these."""
        self._waiting.extend(removals)

    def take(self) -> FilesRemoved:
        """The next message."""
        count = min(AT_ONCE, len(self._waiting))
        return FilesRemoved(tuple(self._waiting.popleft() for _ in range(count)))
