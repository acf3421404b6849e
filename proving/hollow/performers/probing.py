"""The hollow twin of the prober: results are lost, doubled, late, out of order or lies, by a seed,
and at times there are none at all."""

import random
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from muster.control.deployment.probing.effects import Watch
from muster.control.engine.effects import Performer
from muster.core.clock import Clock
from muster.core.serving.probes import ProbeResult, Watched
from proving.hollow.performers.late_calls import LateCalls


@dataclass(frozen=True, slots=True)
class ProbeFaults:
    """How often each fault happens, as parts of 1 of all effects, probes or results.

    Args:
        ignored: the effect is never carried out.
        lost: nobody hears of a result; the next one counts it as well.
        doubled: the result is told twice.
        lies: the probe is taken for good where it is bad, or the other way round.
        stuck: no probe comes to its end, of all routes, in a time of ``stuck_s`` that begins with
            this one.
        late_s: the longest time until an effect is carried out or a result is told, so that the
            order changes too.
    """

    ignored: float = 0.0
    lost: float = 0.0
    doubled: float = 0.0
    lies: float = 0.0
    stuck: float = 0.0
    stuck_s: float = 30.0
    late_s: float = 0.0


NO_PROBE_FAULTS = ProbeFaults()


@dataclass(slots=True)
class _Route:
    """A route that is watched, with its last probe."""

    watched: Watched
    due_s: float
    good: bool = False
    streak: int = 0


@dataclass(frozen=True, slots=True)
class _Told:
    """A result, and the time of its probe, from which its age is counted."""

    result: ProbeResult
    completed_s: float


class HollowProber(LateCalls, Performer[Watch]):
    """A performer that probes and reports when ``tick`` is called, once for each interval.

    Attributes:
        blind_until: the time until which no probe comes to its end, and nothing is told.
        probed: how often each route was probed.

    Args:
        answers: whether a route of a generation is well, when it is probed; None if nothing is
            found out, as by a fault of the prober's own machine.
        report: takes results.
        value: of the metric of a route that has one.
        reaches: whether the machine of a route is reached.
    """

    kind = Watch

    def __init__(
        self,
        clock: Clock,
        answers: Callable[[str, int], bool | None],
        report: Callable[[Sequence[ProbeResult]], None],
        seed: int = 1,
        faults: ProbeFaults = NO_PROBE_FAULTS,
        value: Callable[[str, int], float | None] = lambda route, generation: None,
        reaches: Callable[[str], bool] = lambda route: True,
    ) -> None:
        super().__init__(clock, random.Random(seed))
        self.faults = faults
        self.blind_until = 0.0
        self.probed: Counter[str] = Counter()
        self._answers = answers
        self._report = report
        self._value = value
        self._reaches = reaches
        self._routes: dict[str, _Route] = {}
        self._results: list[_Told] = []
        self._is_forsaken = False

    @property
    def watched(self) -> dict[str, Watched]:
        """The routes that are watched now."""
        return {name: route.watched for name, route in self._routes.items()}

    @property
    def next_at(self) -> float | None:
        dues = [route.due_s for route in self._routes.values()]
        call = super().next_at
        return min(dues if call is None else [*dues, call], default=None)

    def perform(self, effects: Sequence[Watch]) -> None:
        for effect in effects:
            if not self.happens(self.faults.ignored):
                self._take(effect)

    def be_forsaken(self) -> None:
        """Have the controller be dead: nothing is probed, and nobody hears of anything."""
        self._is_forsaken = True
        self._routes.clear()

    def tick(self) -> bool:
        """Probe what is due, and report what has come to its time; whether there was anything."""
        now = self._clock.now()
        due = [route for route in self._routes.values() if route.due_s <= now]
        for route in due:
            interval_s = route.watched.probe.interval
            route.due_s += interval_s * (1 + (now - route.due_s) // interval_s)
            self._probe(route)
        was_any = super().tick()
        told = self._results.copy()
        self._results.clear()
        if told and not self._is_forsaken and now >= self.blind_until:
            self._report([replace(each.result, age_s=now - each.completed_s) for each in told])
        return was_any or bool(due)

    def _take(self, effect: Watch) -> None:
        known = self._routes.get(effect.route)
        if self._is_forsaken or (known and known.watched.generation > effect.generation):
            return
        if effect.watched is None:
            self._routes.pop(effect.route, None)
        elif known is None or known.watched != effect.watched:
            phase = zlib.crc32(effect.route.encode()) / 2**32
            due_s = self._clock.now() + phase * min(effect.watched.probe.interval, 5.0)
            self._routes[effect.route] = _Route(effect.watched, due_s)

    def _probe(self, route: _Route) -> None:
        now, watched = self._clock.now(), route.watched
        if self.happens(self.faults.stuck):
            self.blind_until = max(self.blind_until, now + self.faults.stuck_s)
        good = self._answers(watched.route, watched.generation)
        if good is None or now < self.blind_until:
            return
        reached = self._reaches(watched.route)
        if not reached:
            good = False
        elif self.happens(self.faults.lies):
            good = not good
        self.probed[watched.route] += 1
        route.streak = route.streak + 1 if good is route.good else 1
        route.good = good
        value = self._value(watched.route, watched.generation) if watched.metric and good else None
        detail = "HTTP 200" if good else "connection refused"
        key = watched.route, watched.generation
        result = ProbeResult(*key, good, route.streak, detail=detail, value=value, reached=reached)
        if not self.happens(self.faults.lost):
            for _ in range(1 + self.happens(self.faults.doubled)):
                self.later(partial(self._results.append, _Told(result, now)), self.faults.late_s)
