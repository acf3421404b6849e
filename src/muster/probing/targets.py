"""Targets: the addresses that a prober watches, and what it found there last.

It imports modules of the probing process only, which is to be small.
"""

import json
import math
import zlib
from dataclasses import dataclass, field
from typing import Any

FIRST_WITHIN_S = 5.0
"""Seconds within which a target is probed for the first time, however long its interval is."""
READ_S = 0.9
"""The shortest time between the beginnings of two readings of a metric."""
READ_WITHIN_S = 2.0
"""Seconds beyond a time-out within which a reading of the metric has its turn, or counts as
missing."""


@dataclass(slots=True, eq=False)
class ProbedAddress:
    """An address that is probed.

    Args:
        route, generation: the key of its results.
        request: of HTTP; empty where a connection is all.
        good: first and last of the statuses that are good.
        metric_request, metric: of the metric that is read as well; empty without.

    Attributes:
        due_s: when it is probed next.
        turn: which of the host's addresses comes next.
        is_read: whether a reading of the metric is under way, or waits.
        is_slow, is_slowly_read: whether the last one did not come to its end in time.
        streak: completed probes in a row that were as ``is_good`` says; 0 before the first.
        read_s: when the reading of the metric began last.
        is_gone: whether it is watched no more.
    """

    route: str
    generation: int
    host: str
    port: int
    interval_s: float
    timeout_s: float
    request: bytes
    good: tuple[tuple[int, int], ...]
    metric_request: bytes = b""
    metric: str = ""

    due_s: float = 0.0
    turn: int = 0
    is_read: bool = False
    is_slow: bool = False
    is_slowly_read: bool = False
    streak: int = 0
    is_good: bool = False
    completed_s: float = 0.0
    detail: str = ""
    reached: bool = True
    value: float | None = None
    lack: str = ""  # why there is no value
    read_s: float = -math.inf
    is_gone: bool = False
    phase_s: float = field(init=False)

    def __post_init__(self) -> None:
        # By its id, so that targets are spread over the interval, after a restart as before it.
        part = zlib.crc32(self.route.encode()) / 2**32
        self.phase_s = part * self.interval_s

    def begin_at(self, now_s: float) -> None:
        """Have the first probe come soon, but not together with those of others."""
        self.due_s = now_s + self.phase_s * min(1.0, FIRST_WITHIN_S / self.interval_s)

    def go_on_at(self, now_s: float) -> None:
        """Have the next probe come at the target's own moment in an interval. Moments that have
        passed, while a probe was under way or waited, are left out."""
        after_s = max(now_s, self.due_s + self.interval_s / 2)
        nth = math.floor((after_s - self.phase_s) / self.interval_s) + 1
        self.due_s = nth * self.interval_s + self.phase_s

    def complete(self, good: bool, detail: str, now_s: float, *, reached: bool = True) -> None:
        """Note a completed probe."""
        self.streak = self.streak + 1 if good is self.is_good else 1
        self.is_good, self.detail, self.completed_s = good, detail, now_s
        self.reached = reached
        is_overdue = self.is_read and self.read_s + self.timeout_s + READ_WITHIN_S < now_s
        if not good or is_overdue:
            self.value, self.lack = None, ""

    def may_be_read(self, now_s: float) -> bool:
        """Whether it is time to read the metric."""
        return bool(self.metric) and not self.is_read and self.read_s + READ_S <= now_s

    def result(self) -> list[Any]:
        """The last completed probe, as it is told."""
        detail = f"{self.detail}; {self.lack}" if self.lack else self.detail
        return [
            *(self.route, self.generation, self.is_good, self.streak),
            *(self.completed_s, detail, self.value, self.reached),
        ]


def read_order(line: bytes) -> tuple[str, ProbedAddress | None]:
    """A route, and its target from now on, from the performer's line.

    Raises:
        ValueError: it is no such line.
    """
    try:
        told = json.loads(line)
        if "host" not in told:
            return told["route"], None
        told["request"] = told["request"].encode("latin-1")
        told["metric_request"] = told["metric_request"].encode("latin-1")
        told["good"] = tuple((first, last) for first, last in told["good"])
        return told["route"], ProbedAddress(**told)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"no order: {type(error).__name__}") from None
