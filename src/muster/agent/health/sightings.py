"""The sightings that the controller has not dealt with yet, in the order in which they are told.

One message of them is on its way at a time. It is sent again on each new stream, and after a while,
until the controller notes it: nothing is lost, and what comes twice is known by its number.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from muster.core.health.remedy import Remedy
from muster.core.health.verdict import MAX_WHAT, bounded
from muster.wire.messages import HealthSeen, Sighting

MAX_KEPT = 64
"""Sightings that wait, at most; the oldest are dropped, because a machine against which so much
speaks is under suspicion already."""
IN_ONE_MESSAGE = 32
PAUSE_S = 2.0
"""Seconds between two messages, at least: the controller does not hear an agent more often."""
AGAIN_S = 60.0
"""Seconds after which what was not noted is sent again."""


class SightingBox:
    """
    Args:
        kept: those that an earlier process could not tell.
        last_seq: the number of the last sighting that was ever made here.
    """

    def __init__(self, kept: Iterable[Sighting] = (), last_seq: int = 0) -> None:
        self._kept = deque(kept, MAX_KEPT)
        self.last_seq = max([last_seq, *(each.seq for each in self._kept)])
        self._sent_s: float | None = None
        self._under_way = False

    @property
    def kept(self) -> Sequence[Sighting]:
        return tuple(self._kept)

    def add(
        self,
        remedy: Remedy,
        what: str,
        *,
        devices: tuple[int, ...] = (),
        confirmed: bool = False,
        boot_id: str = "",
        at: float = 0.0,
    ) -> Sighting:
        """Keep a sighting until it is noted; it gets the next number. See ``Sighting``."""
        self.last_seq += 1
        what = bounded(what, MAX_WHAT)
        made = Sighting(self.last_seq, remedy, what, devices, confirmed, boot_id, at)
        self._kept.append(made)
        return made

    def rewind(self) -> None:
        """A new stream begins: nothing is under way there."""
        self._under_way = False

    def is_due(self, now_s: float) -> bool:
        """Whether there is something to be sent now, by any clock that only goes on."""
        if not self._kept:
            return False
        wait_s = AGAIN_S if self._under_way else PAUSE_S
        return self._sent_s is None or now_s >= self._sent_s + wait_s

    def take(self, now_s: float) -> HealthSeen:
        """The message to be sent now."""
        self._sent_s, self._under_way = now_s, True
        return HealthSeen(tuple(self._kept)[:IN_ONE_MESSAGE])

    def noted(self, seq: int) -> bool:
        """Forget the sightings up to number ``seq``; the answer is whether there were any."""
        before = len(self._kept)
        while self._kept and self._kept[0].seq <= seq:
            self._kept.popleft()
        self._under_way = self._under_way and len(self._kept) == before
        return len(self._kept) != before
