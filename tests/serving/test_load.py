"""A number of replicas that follows load, second by second."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from muster.core.specs.serving import ScaleMetric, ScaleSpec
from muster.serving.load import BUCKETS, LoadMemory, Scaling, ScalingCode, follow


def spec(**keys: object) -> ScaleSpec:
    return ScaleSpec.model_validate(
        {"min": 1, "max": 10, "target": 4.0, "window": 60.0, "cool_down_down": 30.0, **keys}
    )


class Run:
    """A deployment whose replicas are up at once, unless ``starting`` says otherwise."""

    def __init__(self, scale: ScaleSpec, current: int) -> None:
        self.spec = scale
        self.current = current
        self.starting = 0
        self.memory = LoadMemory()
        self.now = 0.0

    def step(self, load: float | None, held: int = 0) -> Scaling:
        scaling = follow(
            self.memory, self.spec, load, held, self.current, self.starting, 600.0, self.now
        )
        self.memory, self.current = scaling.memory, scaling.wanted
        self.now += 1.0
        return scaling

    def run(self, load: float | None, seconds: int, held: int = 0) -> Scaling:
        for _ in range(seconds):
            scaling = self.step(load, held)
        return scaling

    def changes(self, loads: Iterable[float | None]) -> list[tuple[float, int, str]]:
        """When the number changed, to what, and why."""
        found = []
        for load in loads:
            before, at = self.current, self.now
            scaling = self.step(load)
            if scaling.wanted != before:
                found.append((at, scaling.wanted, scaling.why.code.value))
        return found


def test_load_that_grows_slowly_is_followed_by_the_mean_of_the_window() -> None:
    run = Run(spec(), 2)
    assert run.changes([8.0] * 60 + [12.0] * 60) == [(60.0, 3, "up")]
    assert run.changes([12.0] * 600) == []


def test_burst_is_followed_by_the_panic_window_and_nothing_goes_down_in_it() -> None:
    run = Run(spec(), 2)
    assert run.changes([8.0] * 60) == []
    changes = run.changes([40.0] * 6)
    assert changes == [
        (60.0, 3, "up"),
        (62.0, 6, "panic"),
        (63.0, 8, "panic"),
        (64.0, 9, "panic"),
        (65.0, 10, "panic"),
    ]
    last = run.run(0.0, 56)  # until a window after the panic began
    assert (last.wanted, last.why.code) == (10, ScalingCode.IN_PANIC)
    assert run.step(0.0).why.code is ScalingCode.DOWN


def test_load_that_falls_is_followed_after_window_and_cool_down() -> None:
    run = Run(spec(), 1)
    assert run.changes([7.0]) == [(0.0, 2, "up")]
    assert run.changes([7.0] * 100) == []
    assert run.changes([0.5] * 100) == [(128.0, 1, "down")]
    run = Run(spec(cool_down_down=300.0), 1)
    run.run(7.0, 101)
    assert run.run(0.5, 100).why.code is ScalingCode.COOLING
    assert run.changes([0.5] * 200) == [(300.0, 1, "down")]


def test_cool_down_up_puts_the_next_rise_off() -> None:
    run = Run(spec(cool_down_up=20.0), 1)
    changes = run.changes([7.0] + [100.0] * 60)
    assert changes == [(0.0, 2, "up"), (20.0, 10, "panic")]


def test_little_known_takes_nothing_away() -> None:
    run = Run(spec(), 8)  # a controller that has begun
    assert run.run(0.0, 60).why.code is ScalingCode.FILLING
    assert run.changes([0.0] * 2) == [(60.0, 1, "down")]


def test_missing_metrics_change_nothing() -> None:
    run = Run(spec(), 3)
    run.run(12.0, 100)
    missing = run.run(None, 1000)
    assert (missing.wanted, missing.why.code) == (3, ScalingCode.NO_METRICS)
    assert run.run(0.0, 60).why.code is ScalingCode.FILLING  # what was before is forgotten
    assert run.changes([0.0] * 2) == [(1160.0, 1, "down")]


def test_one_load_that_is_missing_now_and_then_does_no_harm() -> None:
    run = Run(spec(), 3)
    assert run.changes([4.0, 4.0, 4.0, None] * 20) == [(60.0, 1, "down")]


def test_replicas_that_start_are_counted_and_not_taken_away() -> None:
    run = Run(spec(), 1)
    run.run(20.0, 10)
    assert run.current == 5
    run.starting = 4
    assert run.changes([20.0] * 300) == []  # nobody asks twice for what is coming
    stays = run.run(1.0, 200)
    assert (stays.wanted, stays.why.code) == (5, ScalingCode.STARTING)
    assert dict(stays.why.numbers) == {"wanted": 1, "starting": 4}
    assert run.changes([1.0] * 300) == [(600.0, 1, "down")]  # they do not come


def test_last_replica_goes_when_window_and_cool_down_passed_without_a_request() -> None:
    run = Run(spec(min=0), 1)
    run.run(1.0, 10)
    assert run.changes([0.0] * 200) == [(99.0, 0, "idle")]
    assert run.changes([0.0] * 200) == []


def test_replica_that_was_begun_for_a_request_is_idle_only_from_when_it_could_be_asked() -> None:
    run = Run(spec(min=0), 0)
    run.run(0.0, 60)
    assert run.step(0.0, held=1).wanted == 1
    run.starting = 1
    assert run.run(0.0, 30, held=1).wanted == 1
    assert run.run(0.0, 120).wanted == 1, "whoever asked has given up"
    run.starting, up_at = 0, run.now
    assert run.changes([0.0] * 120) == [(up_at + 60.0 + 30.0 - 1.0, 0, "idle")]


def test_last_replica_that_was_replaced_is_idle_only_from_when_it_is_back() -> None:
    run = Run(spec(min=0), 1)
    run.run(4.0, 300)
    run.starting = 1  # an update, or its machine died
    assert run.changes([0.0] * 150) == []
    run.starting, up_at = 0, run.now
    assert run.changes([0.0] * 120) == [(up_at + 60.0 + 30.0 - 1.0, 0, "idle")]


def test_replica_that_never_comes_up_is_given_up_in_the_end() -> None:
    run = Run(spec(min=0), 0)
    assert run.step(0.0, held=1).wanted == 1
    run.starting = 1
    assert run.changes([0.0] * 800) == [(1.0 + 600.0 + 60.0 + 30.0 - 1.0, 0, "idle")]


def test_request_keeps_the_last_replica_however_small_the_mean_is() -> None:
    run = Run(spec(min=0), 1)
    assert run.changes(([1.0] + [0.0] * 80) * 5) == []


def test_first_replica_comes_at_once_for_a_request_that_is_held() -> None:
    run = Run(spec(min=0, cool_down_up=600.0), 0)
    run.run(0.0, 100)
    scaling = run.step(0.0, held=1)
    assert (scaling.wanted, scaling.why.code) == (1, ScalingCode.HELD)
    run = Run(spec(min=0), 0)
    assert run.step(None, held=1).wanted == 1
    run = Run(spec(min=0, max=3), 0)
    assert run.step(0.0, held=1000).wanted == 3


def test_held_requests_are_load_where_requests_are_the_metric() -> None:
    run = Run(spec(), 1)
    assert run.step(4.0, held=8).wanted == 3
    prometheus = spec(min=0, metric=ScaleMetric.PROMETHEUS, name="busy")
    run = Run(prometheus, 1)
    assert run.step(4.0, held=8).wanted == 1


def test_bounds_hold_at_once_even_without_metrics() -> None:
    assert Run(spec(min=3), 1).step(None).wanted == 3
    assert Run(spec(max=2), 7).step(None).wanted == 2
    assert Run(spec(min=2), 0).step(0.0).why.code is ScalingCode.BOUNDS
    run = Run(spec(), 1)
    assert run.run(1e9, 10).wanted == 10


def test_exact_multiple_of_the_target_asks_for_no_further_replica() -> None:
    run = Run(spec(target=0.1), 1)
    assert run.step(0.1 + 0.2).wanted == 3


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 30.0),
            st.one_of(st.none(), st.floats(0, 1e6)),
            st.integers(0, 5),
            st.integers(0, 3),
        ),
        max_size=200,
    ),
    st.integers(0, 3),
    st.sampled_from([1.0, 10.0, 60.0]),
)
def test_any_loads_keep_bounds_and_a_bounded_memory(
    loads: list[tuple[float, float | None, int, int]], low: int, window: float
) -> None:
    run = Run(spec(min=low, max=20, window=window), low)
    for wait_s, load, held, starting in loads:
        run.now += wait_s
        run.starting = starting
        before = run.current
        scaling = run.step(load, held)
        assert low <= scaling.wanted <= 20
        assert len(scaling.memory.buckets) <= BUCKETS + 1
        if held:
            assert scaling.wanted > 0
        if load is None and before:
            assert scaling.wanted == before
        if scaling.wanted < before:
            assert not held or scaling.wanted > 0


def test_load_beyond_all_numbers_asks_for_as_many_as_there_may_be() -> None:
    run = Run(spec(), 2)
    for load in (1.7e308, float("inf")):
        scaling = run.run(load, 100)
        assert (scaling.wanted, scaling.memory.buckets[-1].total < float("inf")) == (10, True)
    assert run.run(-1.7e308, 1000).wanted == 1
