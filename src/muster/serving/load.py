"""A number of replicas that follows load (design: Deployments and routes) (source: Knative).

The load is what all replicas have together, and the number wanted is that by the target of one. So
replicas that are still to come are not asked for twice.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil

from muster.core.specs.serving import ScaleMetric, ScaleSpec
from muster.serving.why import Why, why

BUCKETS = 60
"""Parts of the window, in each of which loads are added up."""
PANIC_PART = 0.1
"""The panic window, as a part of the window."""
PANIC_AT = 2.0
"""Load, as a multiple of what the replicas are for, from which on the panic window counts."""
GAP_S = 10.0
"""Time without a load after which what came before is forgotten, where the panic window is not
longer."""
MAX_LOAD = 1e15
"""More counts as so much, so that sums of what replicas claim are numbers."""
_ROUNDING = 1e-9


class ScalingCode(StrEnum):
    """The whys of a number of replicas, with their numbers."""

    STEADY = "steady"  # load, target
    NO_METRICS = "no metrics"
    BOUNDS = "bounds"  # min, max
    HELD = "held"  # held: requests that wait for a first replica
    UP = "up"  # load, target
    PANIC = "panic"  # load, target
    DOWN = "down"  # load, target
    IDLE = "idle"  # after_s
    COOLING = "cooling"  # wanted, after_s: it is too early for another change
    IN_PANIC = "in panic"  # wanted: the number does not go down
    STARTING = "starting"  # wanted, starting: replicas that come up are not taken away
    FILLING = "filling"  # wanted, window_s: too short a time is known


@dataclass(frozen=True, slots=True)
class Bucket:
    """The loads of a part of the window, which begins at ``at``."""

    at: float
    total: float
    count: int

    @property
    def mean(self) -> float:
        return self.total / self.count


@dataclass(frozen=True, slots=True)
class LoadMemory:
    """The memory of a deployment's load. Moments are seconds since the epoch.

    Args:
        buckets: of the window, BUCKETS + 1 at most, oldest first.
        told_at: when the last load came.
        known_since: since when loads have come without a gap.
        busy_at: when there was a request the last time, or none could be answered, because the load
            was not known, or no replica was up yet.
        none_up_since: since when none of the wanted replicas is up; None if one is, or none is
            wanted.
        changed_at: when the number changed last.
        panic_until: until when the number does not go down.
    """

    buckets: tuple[Bucket, ...] = ()
    told_at: float | None = None
    known_since: float = 0.0
    busy_at: float = 0.0
    none_up_since: float | None = None
    changed_at: float | None = None
    panic_until: float = 0.0


@dataclass(frozen=True, slots=True)
class Scaling:
    """A decision: what is remembered in place of the former memory, and how many replicas are
    wanted."""

    memory: LoadMemory
    wanted: int
    why: Why[ScalingCode]


def follow(
    memory: LoadMemory,
    spec: ScaleSpec,
    load: float | None,
    held: int,
    current: int,
    starting: int,
    patience_s: float,
    now: float,
) -> Scaling:
    """The number of replicas for a load.

    Args:
        load: the metric's sum over all replicas that are up, 0 if none are; None if it is not known
            of all of them.
        held: requests that wait for a replica. They are load where requests are the metric.
        current: how many replicas are wanted so far.
        starting: those of them that are still to come up.
        patience_s: how long after a change these keep their place, whatever the load is; and for
            how long nobody is idle while none is up.
    """
    if load is not None:
        load = min(max(load, 0.0), MAX_LOAD)
        load += held if spec.metric is ScaleMetric.REQUESTS else 0
        memory = _remember(memory, spec.window, load, now)
    memory = _note_none_up(memory, none_up=0 < current <= starting, now=now)
    begins = memory.none_up_since is not None and now < memory.none_up_since + patience_s
    if load is None or load or held or begins:
        memory = replace(memory, busy_at=now)
    within = min(max(current, spec.min), spec.max)
    if within != current:
        scaling = Scaling(memory, within, why(ScalingCode.BOUNDS, min=spec.min, max=spec.max))
    elif not current and held:
        scaling = _first(memory, spec, held, now)
    elif load is None:
        scaling = Scaling(memory, current, why(ScalingCode.NO_METRICS))
    else:
        scaling = _by_load(memory, spec, current, starting, patience_s, now)
    if scaling.wanted != current:
        scaling = replace(scaling, memory=replace(scaling.memory, changed_at=now))
    return scaling


def _note_none_up(memory: LoadMemory, *, none_up: bool, now: float) -> LoadMemory:
    """The memory after a look at whether any of the wanted replicas is up: who has just come up
    could not be asked before, and is not idle for that."""
    if not none_up:
        return replace(memory, none_up_since=None)
    if memory.none_up_since is None:
        return replace(memory, none_up_since=now)
    return memory


def _first(memory: LoadMemory, spec: ScaleSpec, held: int, now: float) -> Scaling:
    """The first replicas, at once."""
    load = _mean(memory, PANIC_PART * spec.window, now)
    memory = replace(memory, panic_until=now + spec.window)
    return Scaling(memory, max(1, _number(load, spec)), why(ScalingCode.HELD, held=held))


def _by_load(
    memory: LoadMemory,
    spec: ScaleSpec,
    current: int,
    starting: int,
    patience_s: float,
    now: float,
) -> Scaling:
    """The number by the mean load of the window or, in panic, of the panic window if that is
    more."""
    load = _mean(memory, spec.window, now)
    lately = _mean(memory, PANIC_PART * spec.window, now)
    if current and lately >= PANIC_AT * spec.target * current:
        memory = replace(memory, panic_until=now + spec.window)
    in_panic = now < memory.panic_until
    if in_panic:
        load = max(load, lately)
    wanted = _number(load, spec)
    if wanted > current > 0:
        code = ScalingCode.PANIC if in_panic else ScalingCode.UP
        if memory.changed_at is not None and now < memory.changed_at + spec.cool_down_up:
            cooling = why(ScalingCode.COOLING, wanted=wanted, after_s=spec.cool_down_up)
            return Scaling(memory, current, cooling)
        return Scaling(memory, wanted, why(code, load=load, target=spec.target))
    idle_s = spec.window + spec.cool_down_down
    if not wanted and now < memory.busy_at + idle_s:
        wanted = 1
    if wanted >= current:
        steady = why(ScalingCode.STEADY, load=load, target=spec.target)
        return Scaling(memory, current, steady)
    stays = _stays(memory, spec, wanted, starting, patience_s, now)
    if stays is not None:
        return Scaling(memory, current, stays)
    if not wanted:
        return Scaling(memory, wanted, why(ScalingCode.IDLE, after_s=idle_s))
    return Scaling(memory, wanted, why(ScalingCode.DOWN, load=load, target=spec.target))


def _stays(
    memory: LoadMemory, spec: ScaleSpec, wanted: int, starting: int, patience_s: float, now: float
) -> Why[ScalingCode] | None:
    """Why the number does not go down to what the load asks for; None if it does."""
    changed_at = memory.known_since if memory.changed_at is None else memory.changed_at
    if now < memory.panic_until:
        return why(ScalingCode.IN_PANIC, wanted=wanted)
    if now < memory.known_since + spec.window:
        return why(ScalingCode.FILLING, wanted=wanted, window_s=spec.window)
    if now < changed_at + spec.cool_down_down:
        return why(ScalingCode.COOLING, wanted=wanted, after_s=spec.cool_down_down)
    if starting and now < changed_at + patience_s:
        return why(ScalingCode.STARTING, wanted=wanted, starting=starting)
    return None


def _number(load: float, spec: ScaleSpec) -> int:
    """The replicas for a load, within the bounds."""
    return min(max(ceil(load / spec.target - _ROUNDING), spec.min), spec.max)


def _remember(memory: LoadMemory, window_s: float, load: float, now: float) -> LoadMemory:
    """The memory with another load. What came before a gap is forgotten."""
    buckets = memory.buckets
    if memory.told_at is None or now - memory.told_at > max(PANIC_PART * window_s, GAP_S):
        memory = replace(memory, known_since=now, busy_at=now)
        buckets = ()
    if buckets and now - buckets[-1].at < window_s / BUCKETS:
        last = buckets[-1]
        buckets = (*buckets[:-1], Bucket(last.at, last.total + load, last.count + 1))
    else:
        buckets = (*buckets, Bucket(now, load, 1))
    kept = tuple(each for each in buckets if each.at > now - window_s)
    return replace(memory, buckets=kept[-BUCKETS - 1 :], told_at=now)


def _mean(memory: LoadMemory, window_s: float, now: float) -> float:
    """The mean load of the last seconds; the last known, where they are fewer than apart from each
    other."""
    means = [each.mean for each in memory.buckets if each.at > now - window_s]
    if not means:
        means = [each.mean for each in memory.buckets[-1:]]
    return sum(means) / len(means) if means else 0.0
