"""The prober's twin, in virtual time."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from proving.hollow.performers.probing import NO_PROBE_FAULTS, HollowProber, ProbeFaults
from proving.hollow.virtual_clock import VirtualClock
from tests.probing.told import quick, watched

from muster.control.deployment.probing.effects import Watch
from muster.core.serving.probes import ProbeResult

SECOND = quick(interval=1.0)


@dataclass
class Replicas:
    """Replicas that are well or not, their prober, and what it has told."""

    faults: ProbeFaults = NO_PROBE_FAULTS
    seed: int = 1
    well: dict[str, bool] = field(default_factory=dict)
    told: list[ProbeResult] = field(default_factory=list)
    told_at: list[tuple[float, ProbeResult]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = VirtualClock()
        self.prober = HollowProber(
            self.clock, self._answer, self._take, self.seed, self.faults, lambda route, _: 2.5
        )

    def _answer(self, route: str, generation: int) -> bool | None:
        return self.well.get(route)

    def _take(self, results: Sequence[ProbeResult]) -> None:
        self.told += results
        self.told_at += [(self.clock.now(), each) for each in results]

    def watch(self, *routes: str, generation: int = 1, metric: str | None = None) -> None:
        self.prober.perform(
            [
                Watch.of(watched(route, 80, SECOND, generation=generation, metric=metric))
                for route in routes
            ]
        )

    def run(self, seconds: float) -> None:
        until_s = self.clock.now() + seconds
        while (at := self.prober.next_at) is not None and at <= until_s:
            self.clock.advance_to(at)
            assert self.prober.tick()
        self.clock.advance_to(until_s)

    def streaks(self, route: str) -> list[tuple[bool, int]]:
        return [(each.good, each.streak) for each in self.told if each.route == route]


def test_routes_are_probed_once_in_an_interval_and_counted() -> None:
    replicas = Replicas(well={"a": True, "b": True})
    replicas.watch("a", "b", metric="load")
    replicas.run(3.0)
    replicas.well["a"] = False
    replicas.run(2.0)
    assert replicas.streaks("a") == [(True, 1), (True, 2), (True, 3), (False, 1), (False, 2)]
    assert replicas.streaks("b") == [(True, n) for n in range(1, 6)]
    assert [each.value for each in replicas.told if each.route == "a"] == [2.5] * 3 + [None] * 2


def test_effects_are_idempotent_and_of_their_generation() -> None:
    replicas = Replicas(well={"a": True})
    replicas.watch("a", generation=2)
    replicas.run(2.0)
    replicas.watch("a", generation=2)
    replicas.watch("a", generation=1)
    replicas.run(1.0)
    assert [each.generation for each in replicas.told] == [2, 2, 2]
    assert replicas.streaks("a")[-1] == (True, 3)
    replicas.watch("a", generation=3)
    replicas.run(1.0)
    assert (replicas.told[-1].generation, replicas.told[-1].streak) == (3, 1)
    replicas.prober.perform([Watch("a", 2)])
    assert set(replicas.prober.watched) == {"a"}
    replicas.prober.perform([Watch("a", 3)])
    replicas.run(9.0)
    assert len(replicas.told) == 4
    assert replicas.prober.next_at is None


def test_prober_that_is_blind_tells_nothing_and_goes_on_later() -> None:
    replicas = Replicas(well={"a": True})
    replicas.watch("a")
    replicas.run(2.0)
    replicas.prober.blind_until = replicas.clock.now() + 60.0
    replicas.run(59.0)
    assert len(replicas.told) == 2
    replicas.run(5.0)
    assert replicas.streaks("a")[2] == (True, 3)


def test_replica_of_which_nothing_is_found_out_has_no_result() -> None:
    replicas = Replicas()
    replicas.watch("a")
    replicas.run(10.0)
    assert replicas.told == []


def test_forsaken_prober_tells_nothing() -> None:
    replicas = Replicas(ProbeFaults(late_s=5.0), well={"a": True})
    replicas.watch("a")
    replicas.run(3.0)
    heard = len(replicas.told)
    replicas.prober.be_forsaken()
    replicas.run(30.0)
    assert len(replicas.told) == heard


def test_faults_lose_double_delay_reorder_and_lie_by_the_seed() -> None:
    faults = ProbeFaults(lost=0.2, doubled=0.2, lies=0.1, late_s=3.0)

    def shaken(seed: int) -> Replicas:
        replicas = Replicas(faults, seed, {"a": True})
        replicas.watch("a")
        replicas.run(300.0)
        return replicas

    replicas = shaken(1)
    completed = [round(at - each.age_s, 3) for at, each in replicas.told_at]
    assert replicas.prober.probed["a"] == 300
    assert 210 < len(set(completed)) < 270  # some are lost
    assert len(completed) - len(set(completed)) > 20  # some come twice
    assert completed != sorted(completed)
    assert 10 < sum(not each.good for each in replicas.told) < 60
    assert 2.0 < max(each.age_s for each in replicas.told) < 3.001
    assert shaken(1).told == replicas.told
    assert shaken(2).told != replicas.told


def test_ignored_effect_is_no_effect_until_it_comes_again() -> None:
    replicas = Replicas(ProbeFaults(ignored=1.0), well={"a": True})
    replicas.watch("a")
    assert replicas.prober.watched == {}
    replicas.prober.faults = NO_PROBE_FAULTS
    replicas.watch("a")
    assert set(replicas.prober.watched) == {"a"}
