"""Reports that the controller has not acknowledged yet.

Reports of the supervisor's events carry the numbers that its journal, which is the spool, gave
them. PREPARED and PREPARE_FAILED have no number: they are told again on each new stream instead.
"""

from collections import deque
from collections.abc import Iterable

from muster.wire.messages import KernelReport, Reports


class Outbox:
    """Reports in order, repeated on each new stream until acknowledged.

    It has only a few reports for each kernel on the agent, so it needs no bound of its own.
    """

    def __init__(self) -> None:
        self._sent: deque[tuple[int, KernelReport]] = deque()
        self._unsent: deque[tuple[int, KernelReport]] = deque()
        self._unnumbered: list[KernelReport] = []
        self._acknowledged_seq = 0
        self._last_seq = 0

    def __len__(self) -> int:
        """The number of reports that are still to be sent."""
        return len(self._unsent) + len(self._unnumbered)

    def add(self, seq: int, report: KernelReport) -> None:
        self._unsent.append((seq, report))

    def add_unnumbered(self, report: KernelReport) -> None:
        self._unnumbered.append(report)

    def rewind(self, unnumbered: Iterable[KernelReport] = ()) -> None:
        """Have everything unacknowledged sent again, together with ``unnumbered``, on a new
        stream."""
        self._unsent.extendleft(reversed(self._sent))
        self._sent.clear()
        self._last_seq = self._acknowledged_seq
        self._unnumbered = list(unnumbered)

    def clear(self) -> None:
        """Drop everything, for a supervisor that was attached anew and repeats its unacknowledged
        events."""
        self._sent.clear()
        self._unsent.clear()

    def take(self, limit: int) -> Reports:
        """The next batch: at most ``limit`` numbered reports, and all that have no number.

        A batch without a numbered report has the ``last_seq`` of the former batch, because a
        repeated acknowledgement does no harm.
        """
        batch, self._unnumbered = self._unnumbered, []
        for _ in range(min(limit, len(self._unsent))):
            numbered = self._unsent.popleft()
            self._sent.append(numbered)
            self._last_seq = numbered[0]
            batch.append(numbered[1])
        return Reports(self._last_seq, tuple(batch))

    def acknowledge(self, seq: int) -> list[KernelReport]:
        """Forget the reports up to number ``seq``; the answer is the forgotten reports."""
        self._acknowledged_seq = max(self._acknowledged_seq, seq)
        forgotten = []
        for queue in (self._sent, self._unsent):
            while queue and queue[0][0] <= seq:
                forgotten.append(queue.popleft()[1])
        return forgotten
