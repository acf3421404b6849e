"""The GPU of a gang that is unlike the others: none where all are alike, else the planted one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from muster.core.health.counters import GpuMeans
from muster.core.health.stragglers import (
    IN_A_ROW,
    LEAST_MEMBERS,
    Counter,
    Reading,
    Streaks,
    continued,
    deviations,
    stragglers,
)

USUAL = GpuMeans(0, 95.0, 1700.0, 600.0)


def gang(
    size: int, means: Mapping[int, GpuMeans] | None = None, gpus: int = 1, model: str = "H100"
) -> list[Reading]:
    """Members that are alike, but for those whose ``means`` are given."""
    return [
        Reading(f"k{nth}", model, replace((means or {}).get(nth, USUAL), device=gpu))
        for nth in range(size)
        for gpu in range(gpus)
    ]


def judged(readings: Sequence[Reading], times: int = IN_A_ROW) -> Streaks:
    streaks: Streaks = {}
    for _ in range(times):
        streaks = continued(streaks, readings, {each.place for each in readings})
    return streaks


def named(readings: Sequence[Reading]) -> list[tuple[str, list[Counter]]]:
    found = stragglers(judged(readings))
    return [(each.place[0], [d.counter for d in each.deviations]) for each in found]


def test_throttled_gpu_is_known_by_its_clock() -> None:
    slow = GpuMeans(0, 99.0, 1005.0, 420.0)
    [found] = stragglers(judged(gang(8, {3: slow})))
    assert found.place == ("k3", 0)
    assert found.sentence() == (
        "its processors are clocked at 1,005 MHz, the others' at 1,700 MHz; "
        "it draws 420 W, the others 600 W"
    )


def test_gpu_that_waits_for_its_machine_and_one_for_which_the_others_wait() -> None:
    [waits] = stragglers(judged(gang(4, {0: GpuMeans(0, 40.0)})))
    assert "busy 40 % of the time, the others 95 %: it waits for its own machine" in (
        waits.sentence()
    )
    waiting = {nth: GpuMeans(0, 40.0) for nth in range(3)}
    [slow] = stragglers(judged(gang(4, {**waiting, 3: GpuMeans(0, 98.0)})))
    assert (slow.place[0], "the others wait for it" in slow.sentence()) == ("k3", True)


def test_faster_clock_and_little_more_power_are_nothing() -> None:
    assert named(gang(4, {0: GpuMeans(0, 95.0, 1980.0, 640.0)})) == []


def test_all_gpus_of_one_machine_can_be_stragglers() -> None:
    slow = GpuMeans(0, 95.0, 1000.0, 600.0)
    assert named(gang(3, {1: slow}, gpus=8)) == [("k1", [Counter.CLOCK])] * 8


def test_two_members_are_never_compared() -> None:
    assert named(gang(LEAST_MEMBERS - 1, {0: GpuMeans(0, 10.0, 300.0, 80.0)}, gpus=8)) == []


def test_other_models_and_idle_members_are_not_compared() -> None:
    others = [
        replace(each, member=f"b{nth}")
        for nth, each in enumerate(gang(2, {0: GpuMeans(0, 95.0, 900.0), 1: USUAL}, model="A100"))
    ]
    assert named([*gang(6), *others]) == []
    assert named(gang(5, {0: GpuMeans(0, 1.0, 200.0, 70.0)})) == []


def test_clocks_and_power_tell_nothing_of_a_gang_that_mostly_idles() -> None:
    idle = {nth: GpuMeans(0, 20.0, 1700.0, 300.0) for nth in range(4)}
    assert named(gang(4, {**idle, 2: GpuMeans(0, 20.0, 400.0, 100.0)})) == []


def test_interval_between_or_a_change_of_side_begins_anew() -> None:
    low, high = gang(4, {0: GpuMeans(0, 50.0)}), gang(4, {0: GpuMeans(0, 95.0, 1700.0, 900.0)})
    fresh = {each.place for each in low}
    streaks = judged(low, IN_A_ROW - 1)
    assert stragglers(streaks) == []
    assert len(stragglers(continued(streaks, low, fresh))) == 1
    assert stragglers(continued(streaks, low, set())) == []  # it was looked at before
    assert stragglers(continued(continued(streaks, gang(4), fresh), low, fresh)) == []
    streaks = judged(high, IN_A_ROW - 1)
    other_side = gang(4, {0: GpuMeans(0, 95.0, 1700.0, 200.0)})
    assert stragglers(continued(streaks, other_side, fresh)) == []


def test_counters_that_are_not_told_are_left_out() -> None:
    assert named(gang(4, {nth: GpuMeans(0) for nth in range(4)})) == []
    only_clock = {nth: GpuMeans(0, clock_mhz=1700.0) for nth in range(4)}
    assert named(gang(4, {**only_clock, 0: GpuMeans(0, clock_mhz=900.0)})) == [
        ("k0", [Counter.CLOCK])
    ]
    assert named(gang(4, {**only_clock, 0: GpuMeans(0)})) == []


@st.composite
def alike(draw: st.DrawFn) -> list[Reading]:
    """Gangs whose members differ by noise alone: a twentieth to either side."""
    busy = draw(st.floats(0, 100))
    mhz, watts = draw(st.floats(200, 2500)), draw(st.floats(30, 1200))
    noise = st.floats(-0.05, 0.05)

    def near(middle: float) -> float:
        return middle * (1 + draw(noise))

    return [
        Reading(
            f"k{member}",
            "H100",
            GpuMeans(gpu, min(near(busy), 100.0), near(mhz), near(watts)),
        )
        for member in range(draw(st.integers(1, 8)))
        for gpu in range(draw(st.integers(1, 2)))
    ]


@given(alike())
def test_gang_whose_members_are_alike_is_never_judged(readings: list[Reading]) -> None:
    assert deviations(readings) == {}
    assert stragglers(judged(readings)) == []


@given(
    st.lists(st.floats(1690, 1710), min_size=2, max_size=12),
    st.floats(200, 1400),
)
def test_planted_straggler_is_found_and_nobody_else(clocks: list[float], slow: float) -> None:
    readings = [
        Reading(f"k{nth}", "H100", GpuMeans(0, 95.0, mhz)) for nth, mhz in enumerate(clocks)
    ]
    planted = Reading("slow", "H100", GpuMeans(0, 95.0, slow))
    at = int(slow) % (len(readings) + 1)
    assert named([*readings[:at], planted, *readings[at:]]) == [("slow", [Counter.CLOCK])]
