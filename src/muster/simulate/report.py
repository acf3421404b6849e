"""The report of a replay: figures by which policies are compared, and their course over time.

All means over time are over the window of the recording, in which sessions arrive, so that policies
are compared over the same time; after the window sessions only end.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from muster.scheduling.cluster.columns import Floats
from muster.simulate.recording import RecordedState, Recording, SessionFate

POINTS = 300
"""Points of a course over time, at most."""

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Waits:
    """Times from submission to the first start, in seconds, of the sessions that started."""

    mean_s: float
    p50_s: float
    p99_s: float
    max_s: float


@dataclass(frozen=True, slots=True)
class Unstarted:
    """Sessions that never started, all for the same reason; ``example`` is the first of them."""

    code: str
    why: str
    sessions: int
    example: str


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """The figures of one pool, over the whole replay but for the mean.

    Args:
        slices_mean: over the window; slices that boot count.
        machine_hours: from the wish for each machine until it was deleted.
        cost: machine-hours times the pool's price.
    """

    name: str
    slices_made: int
    slices_deleted: int
    slices_mean: float
    slices_peak: int
    machine_hours: float
    cost: float


@dataclass(frozen=True, slots=True)
class Course:
    """The course of a replay: from ``at_s[i]`` on the i-th entries hold. ``waits_s`` are the
    waiting times of evenly spread sessions, the shortest first; ``slices`` those of all pools
    together, if there are any."""

    at_s: tuple[float, ...]
    gpu_percent: tuple[float, ...]
    cpu_percent: tuple[float, ...]
    waiting: tuple[int, ...]
    measured_at_s: tuple[float, ...]
    fragmentation_percent: tuple[float | None, ...]
    fairness: tuple[float | None, ...]
    waits_s: tuple[float, ...]
    slices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Timings:
    """Wall time in the scheduler: the only figures that differ from run to run."""

    pass_ms: float
    decision_us: float
    all_s: float


@dataclass(frozen=True, slots=True)
class Report:
    """One policy's figures; None where there is nothing to measure.

    Args:
        cluster: the machines that it was replayed on, where several are compared; else empty.
        window_s: length of the window over which means are taken.
        makespan_s: from the first submission to the last end.
        gpu_percent, cpu_percent: the allocated part of the capacity; means over the window.
        gpu_peak_percent: the most allocated at a time.
        gpu_under_demand_percent: the mean over the time in the window in which sessions waited.
        fragmentation_percent: the part of free GPU capacity that the mix of classes cannot use.
        stranded_percent: the same amount as a part of all GPU capacity.
        fairness: Jain's index of owners' dominant shares.
        queue_mean, queue_max: sessions that waited.
        backfilled: sessions that started while an earlier one lacked room.
        backfill_percent: of all sessions that started.
        lost_gpu_hours: GPU time of runs that preemption cut short.
        pools: in the order of the policy's file.
        slices_peak: the most slices of all pools together.
        cost: of all pools; None if there are none.
    """

    policy: str
    group: dict[str, Any]
    quotas: tuple[dict[str, Any], ...]
    sessions: int
    started: int
    ended: int
    unstarted: tuple[Unstarted, ...]
    window_s: float
    makespan_s: float
    gpu_percent: float | None
    gpu_peak_percent: float | None
    gpu_under_demand_percent: float | None
    cpu_percent: float
    fragmentation_percent: float | None
    stranded_percent: float | None
    waits: Waits | None
    queue_mean: float
    queue_max: int
    fairness: float | None
    backfilled: int
    backfill_percent: float | None
    preemptions: int
    lost_gpu_hours: float
    pools: tuple[PoolFigures, ...]
    slices_peak: int
    cost: float | None
    passes: int
    decisions: int
    course: Course
    timings: Timings
    cluster: str = ""

    @property
    def title(self) -> str:
        """The name under which the report stands beside others."""
        return f"{self.policy} on {self.cluster}" if self.cluster else self.policy

    def as_dict(self, *, timings: bool = False) -> dict[str, Any]:
        """The report as JSON can hold it.

        Args:
            timings: whether to include the figures that differ from run to run.
        """
        whole = asdict(self)
        left_out = {*(() if timings else ("timings",)), *(() if self.cluster else ("cluster",))}
        return {key: value for key, value in whole.items() if key not in left_out}


def report(recording: Recording, cluster: str = "") -> Report:
    """Figures of a recording; rounded, so that they can be compared as text.

    Args:
        cluster: the name of its machines, where several are compared.
    """
    moments, fates = recording.moments, recording.fates
    over = _OverTime(moments, recording.window)
    gpu = over.mean([each.gpu_capacity for each in moments]) or 0.0
    cpu = over.mean([each.cpu_capacity for each in moments]) or 0.0
    pools = _pools(recording, over)
    started = [fate for fate in fates if fate.started_at is not None]
    waits = np.sort(np.array([_waited_s(fate) for fate in started], np.float64))
    backfilled = sum(fate.backfilled for fate in started)
    samples, policy = recording.samples, recording.policy
    measured = _OverTime(samples, recording.window)
    return Report(
        cluster=cluster,
        policy=policy.name,
        group=policy.group.model_dump(mode="json", exclude_unset=True, exclude={"kind"}),
        quotas=tuple(each.model_dump(mode="json", exclude_unset=True) for each in policy.quotas),
        sessions=len(fates),
        started=len(started),
        ended=sum(fate.ended_at is not None for fate in fates),
        unstarted=_unstarted(fates),
        window_s=_rounded(recording.window[1] - recording.window[0]),
        makespan_s=_rounded(max((each.ended_at or 0.0 for each in fates), default=0.0)),
        gpu_percent=_percent(over.mean([each.gpu_milli for each in moments]), gpu),
        gpu_peak_percent=max(filter(None, map(_gpu_percent, moments)), default=_percent(0, gpu)),
        gpu_under_demand_percent=_percent(
            over.mean([each.gpu_milli if each.waiting else None for each in moments]),
            over.mean([each.gpu_capacity if each.waiting else None for each in moments]) or 0.0,
        ),
        cpu_percent=_percent(over.mean([each.cpu_milli for each in moments]), cpu) or 0.0,
        fragmentation_percent=_percent(measured.mean([each.fragmented for each in samples]), 1),
        stranded_percent=_percent(measured.mean([each.stranded for each in samples]), 1),
        waits=_waits(waits),
        queue_mean=_rounded(over.mean([each.waiting for each in moments]) or 0.0),
        queue_max=max((each.waiting for each in moments), default=0),
        fairness=_maybe_rounded(measured.mean([each.fairness for each in samples]), 4),
        backfilled=backfilled,
        backfill_percent=_percent(backfilled, len(started)),
        preemptions=recording.preemptions,
        lost_gpu_hours=_rounded(recording.lost_gpu_milli_s / 1000 / _HOUR_S),
        pools=pools,
        slices_peak=max((sum(each.slices) for each in moments), default=0),
        cost=_rounded(sum(each.cost for each in pools)) if pools else None,
        passes=recording.passes,
        decisions=recording.decisions,
        course=_course(recording, waits),
        timings=Timings(
            pass_ms=1e3 * recording.pass_s / max(recording.passes, 1),
            decision_us=1e6 * recording.pass_s / max(recording.decisions, 1),
            all_s=recording.pass_s,
        ),
    )


def _pools(recording: Recording, over: "_OverTime") -> tuple[PoolFigures, ...]:
    figures = []
    for index, use in enumerate(recording.pools):
        slices = [each.slices[index] for each in recording.moments]
        hours = use.machine_s / _HOUR_S
        figures.append(
            PoolFigures(
                use.pool.name,
                use.made,
                use.deleted,
                _rounded(over.mean(slices) or 0.0),
                max(slices, default=0),
                _rounded(hours),
                _rounded(hours * use.pool.price),
            )
        )
    return tuple(figures)


def _gpu_percent(moment: RecordedState) -> float | None:
    return _percent(moment.gpu_milli, moment.gpu_capacity)


class _OverTime:
    """Means of values that hold from one moment to the next, inside a window."""

    def __init__(self, moments: Sequence[Any], window: tuple[float, float]) -> None:
        """
        Args:
            moments: each with the time ``at`` from which its values hold.
        """
        edges = np.clip([each.at for each in moments] + [np.inf], *window)
        self._lengths: Floats = np.diff(edges)

    def mean(self, values: Iterable[float | None]) -> float | None:
        """The mean over the time in which there is a value; None if there is no such time."""
        amounts = np.array([np.nan if each is None else each for each in values], np.float64)
        known = ~np.isnan(amounts)
        time_s = float(self._lengths[known].sum())
        return float(amounts[known] @ self._lengths[known]) / time_s if time_s > 0 else None


def _waited_s(fate: SessionFate) -> float:
    assert fate.started_at is not None, "it never started"
    return fate.started_at - fate.submitted_at


def _waits(waits: Floats) -> Waits | None:
    """Figures of sorted waiting times; a percentile is the smallest time that so many percent do
    not exceed."""
    if not waits.size:
        return None
    p50, p99 = np.percentile(waits, (50, 99), method="inverted_cdf").tolist()
    return Waits(*map(_rounded, (float(waits.mean()), p50, p99, float(waits[-1]))))


def _unstarted(fates: Iterable[SessionFate]) -> tuple[Unstarted, ...]:
    """Sessions that never started, by the code of their first reason, the commonest first."""
    first: dict[str, SessionFate] = {}
    counts: Counter[str] = Counter()
    for fate in fates:
        if fate.started_at is None:
            code = fate.reasons[0].code.value if fate.reasons else "UNDECIDED"
            first.setdefault(code, fate)
            counts[code] += 1
    return tuple(
        Unstarted(code, _why(first[code]), count, first[code].name)
        for code, count in counts.most_common()
    )


def _why(fate: SessionFate) -> str:
    return "; ".join(each.sentence() for each in fate.reasons) or "no pass looked at it"


def _course(recording: Recording, waits: Floats) -> Course:
    moments = _thinned(recording)
    samples = recording.samples
    return Course(
        at_s=tuple(_rounded(each.at) for each in moments),
        gpu_percent=tuple(_gpu_percent(each) or 0.0 for each in moments),
        cpu_percent=tuple(_percent(each.cpu_milli, each.cpu_capacity) or 0.0 for each in moments),
        waiting=tuple(each.waiting for each in moments),
        measured_at_s=tuple(_rounded(each.at) for each in samples),
        fragmentation_percent=tuple(_percent(each.fragmented, 1) for each in samples),
        fairness=tuple(_maybe_rounded(each.fairness, 4) for each in samples),
        waits_s=tuple(_rounded(each) for each in waits[_spread(waits.size)].tolist()),
        slices=tuple(sum(each.slices) for each in moments) if recording.pools else (),
    )


def _thinned(recording: Recording) -> list[RecordedState]:
    """Moments, evenly chosen from the start of the window until it is over and all but the last
    percent of the sessions have started."""
    began = sorted(fate.started_at for fate in recording.fates if fate.started_at is not None)
    most = began[-1 - len(began) // 100] if began else 0.0
    first, last = recording.window[0], max(recording.window[1], most)
    moments = [each for each in recording.moments if first <= each.at <= last]
    return [moments[index] for index in _spread(len(moments))]


def _spread(count: int) -> list[int]:
    """Up to ``POINTS`` indexes below ``count``, the first and the last among them."""
    return sorted(set(np.linspace(0, count - 1, min(POINTS, count)).astype(int).tolist()))


def _rounded(value: float) -> float:
    return round(value, 3)


def _maybe_rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _percent(part: float | None, whole: float) -> float | None:
    return None if part is None or not whole else round(100 * part / whole, 2)
