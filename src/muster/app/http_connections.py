"""All connections of HTTP: their number, and the faults of their requests."""

import asyncio
import logging
from collections import Counter
from functools import partial

from muster.proxy.connections import Connections

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 4096
MAX_OF_ONE_ADDRESS = 1024
"""Connections from one address; users of one machine share it."""
TELL_EVERY_S = 60.0
"""How often the log tells of faulty requests."""


class Faults:
    """Counts faulty requests by fault; a line a minute tells the counts."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def note(self, fault: str) -> None:
        if not self.counts:
            asyncio.get_running_loop().call_later(TELL_EVERY_S, self._tell)
        self.counts[fault] += 1

    def _tell(self) -> None:
        told = ", ".join(f"{count} {fault}" for fault, count in self.counts.most_common())
        log.warning("bad requests in the last %.0f s: %s", TELL_EVERY_S, told)
        self.counts.clear()


class HttpConnections(Connections):
    """All connections, and the faults of their requests."""

    def __init__(self) -> None:
        self.faults = Faults()
        too_many = partial(self.faults.note, "connections too many")
        super().__init__(MAX_CONNECTIONS, MAX_OF_ONE_ADDRESS, too_many)
