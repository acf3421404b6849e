"""The GPU of a gang that is unlike the others, and so may hold all of them up. Pure.

Machines that do the same work in step have like counters, so one that is unlike the others for
minutes is suspicious (source: Minder). How far from the others is far is measured by the median
absolute deviation, which stragglers themselves do not move (source: Iglewicz and Hoaglin 1993).

A GPU that is hot or short of power is known by its clock. One whose machine is slow is less busy
than the others, which wait for it in a kernel of theirs (source: SPDL).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from muster.core.health.counters import GpuMeans

LEAST_MEMBERS = 3
"""Members with GPUs of one model, at least: of two nobody can say which one is unlike the other."""
IN_A_ROW = 5
"""Intervals in a row in which a GPU has to be unlike the others."""
SCORE = 3.5
"""The modified z-score from which on a value is an outlier, and ``_CONSISTENT`` the factor by which
it compares with a standard deviation."""
_CONSISTENT = 0.6745
IDLE = 5.0
"""Percent: a GPU that is busy for less of the time takes no part in the gang's work."""
AT_WORK = 50.0
"""Percent: clocks and power tell something only of a gang whose GPUs are busy for more of the
time."""

Place = tuple[str, int]
"""A member of a gang, and the index of a GPU of it."""


class Counter(StrEnum):
    CLOCK = "CLOCK"
    BUSY = "BUSY"
    POWER = "POWER"

    def of(self, means: GpuMeans) -> float | None:
        match self:
            case Counter.CLOCK:
                return means.clock_mhz
            case Counter.BUSY:
                return means.busy
            case Counter.POWER:
                return means.power_w


@dataclass(frozen=True, slots=True)
class _Noise:
    """The distance from the median, at least, below which nothing is said.

    Args:
        least: in the counter's unit.
        part: of the median.
        both: whether a higher value counts too.
    """

    least: float
    part: float
    both: bool

    def around(self, middle: float) -> float:
        return max(self.least, self.part * middle)


NOISE: Mapping[Counter, _Noise] = {
    Counter.CLOCK: _Noise(0.0, 0.1, both=False),
    Counter.BUSY: _Noise(20.0, 0.0, both=True),
    Counter.POWER: _Noise(50.0, 0.25, both=True),
}


@dataclass(frozen=True, slots=True)
class Reading:
    """The means of one GPU that a member of a gang has to itself."""

    member: str
    model: str
    means: GpuMeans

    @property
    def place(self) -> Place:
        return self.member, self.means.device


@dataclass(frozen=True, slots=True)
class Deviation:
    """A counter of a GPU that is far from the median of its gang's, ``others``."""

    counter: Counter
    value: float
    others: float

    @property
    def is_low(self) -> bool:
        return self.value < self.others

    def sentence(self) -> str:
        """The deviation in words, without a full stop."""
        value, others = f"{self.value:,.0f}", f"{self.others:,.0f}"
        match self.counter:
            case Counter.CLOCK:
                return f"its processors are clocked at {value} MHz, the others' at {others} MHz"
            case Counter.BUSY:
                why = "it waits for its own machine" if self.is_low else "the others wait for it"
                return f"it is busy {value} % of the time, the others {others} %: {why}"
            case Counter.POWER:
                return f"it draws {value} W, the others {others} W"


@dataclass(frozen=True, slots=True)
class Streak:
    """A deviation to one side, and for how many intervals in a row it has been there."""

    last: Deviation
    intervals: int


Streaks = Mapping[tuple[Place, Counter], Streak]


@dataclass(frozen=True, slots=True)
class Straggler:
    """A GPU that was unlike the others for ``IN_A_ROW`` intervals."""

    place: Place
    deviations: tuple[Deviation, ...]

    def sentence(self) -> str:
        return "; ".join(each.sentence() for each in self.deviations)


def deviations(readings: Iterable[Reading]) -> dict[tuple[Place, Counter], Deviation]:
    """The counters that are unlike those of the gang's other GPUs of the same model."""
    of_model: dict[str, list[Reading]] = {}
    for reading in readings:
        busy = reading.means.busy
        if busy is None or busy >= IDLE:
            of_model.setdefault(reading.model, []).append(reading)
    found: dict[tuple[Place, Counter], Deviation] = {}
    for alike in of_model.values():
        known = [each.means.busy for each in alike if each.means.busy is not None]
        at_work = not known or median(known) >= AT_WORK
        for counter in Counter:
            if at_work or counter is Counter.BUSY:
                found |= _far(counter, alike)
    return found


def _far(counter: Counter, alike: Sequence[Reading]) -> dict[tuple[Place, Counter], Deviation]:
    told = [(each, value) for each in alike if (value := counter.of(each.means)) is not None]
    if len({each.member for each, _ in told}) < LEAST_MEMBERS:
        return {}
    middle = median(value for _, value in told)
    spread = median(abs(value - middle) for _, value in told)
    noise = NOISE[counter]
    limit = max(noise.around(middle), SCORE / _CONSISTENT * spread)
    return {
        (each.place, counter): Deviation(counter, value, middle)
        for each, value in told
        if middle - value > limit or (noise.both and value - middle > limit)
    }


def continued(
    before: Streaks, readings: Collection[Reading], fresh: Collection[Place]
) -> dict[tuple[Place, Counter], Streak]:
    """The streaks after one more look at a gang.

    Args:
        fresh: the GPUs whose readings are new; those of others count for the median alone.
    """
    found: dict[tuple[Place, Counter], Streak] = {}
    for key, deviation in deviations(readings).items():
        earlier = before.get(key)
        if earlier is not None and earlier.last.is_low is not deviation.is_low:
            earlier = None
        intervals = (0 if earlier is None else earlier.intervals) + (key[0] in fresh)
        if intervals:
            found[key] = Streak(deviation, min(intervals, IN_A_ROW))
    return found


def stragglers(streaks: Streaks) -> list[Straggler]:
    """The GPUs that have been unlike the others for long enough, in the order of their places."""
    found: dict[Place, list[Deviation]] = {}
    for (place, _), streak in streaks.items():
        if streak.intervals >= IN_A_ROW:
            found.setdefault(place, []).append(streak.last)
    order = list(Counter)
    return [
        Straggler(place, tuple(sorted(found[place], key=lambda each: order.index(each.counter))))
        for place in sorted(found)
    ]
