"""Time that goes on where it was, whatever is done to the machine's clock."""

import time
from types import SimpleNamespace

import pytest

from muster.core.clock import (
    ClockAnchor,
    ClockWords,
    Resumed,
    SteadyClock,
    confirmed_ahead_s,
    resumed,
    said_leap,
)

HOUR_S = 3600.0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The machine's clocks, to be set by hand."""
    hands = SimpleNamespace(wall_s=1_700_000_000.0, monotonic_s=500.0, asleep_s=100.0)
    monkeypatch.setattr(time, "time", lambda: hands.wall_s)
    monkeypatch.setattr(time, "monotonic", lambda: hands.monotonic_s)
    boot_clock = {time.CLOCK_BOOTTIME: lambda: hands.monotonic_s + hands.asleep_s}
    monkeypatch.setattr(time, "clock_gettime", lambda clock: boot_clock[clock]())
    return hands


def test_time_passes_as_the_machine_runs_whatever_its_wall_clock_says(
    machine: SimpleNamespace,
) -> None:
    steady = SteadyClock()
    assert steady.now() == machine.wall_s
    machine.wall_s -= HOUR_S
    machine.monotonic_s += 2.0
    assert steady.now() == 1_700_000_002.0


def test_clock_that_was_set_back_goes_on_from_the_last_moment_written_down(
    machine: SimpleNamespace,
) -> None:
    written_s = machine.wall_s
    machine.wall_s -= HOUR_S
    steady = SteadyClock()
    steady.go_on_from(resumed(None, written_s, steady.now(), "a", 9.0).at_s)
    assert steady.now() == written_s
    machine.monotonic_s += 60.0
    assert steady.now() == written_s + 60.0


def test_leap_is_how_far_the_time_of_day_is_ahead(machine: SimpleNamespace) -> None:
    steady = SteadyClock()
    machine.wall_s += 2 * HOUR_S
    assert steady.leap_s() == 2 * HOUR_S
    assert said_leap(2 * HOUR_S).startswith("the time of day is 2h00m ahead of the cluster's time")
    assert said_leap(-60.0).startswith("the time of day is 1m00s behind the cluster's time")


def test_time_stands_still_while_the_machine_is_suspended_and_says_for_how_long(
    machine: SimpleNamespace,
) -> None:
    steady = SteadyClock()
    began_s = steady.now()
    machine.wall_s += 8 * HOUR_S + 5.0
    machine.asleep_s += 8 * HOUR_S
    machine.monotonic_s += 5.0
    assert steady.now() == began_s + 5.0
    assert steady.leap_s() == steady.suspended_s() == 8 * HOUR_S
    steady.go_on_from(machine.wall_s)
    assert steady.leap_s() == steady.suspended_s() == 0.0


NOW_S = 1_700_000_000.0
ANCHOR = ClockAnchor("boot", boot_s=1000.0, at_s=NOW_S - 600.0)  # ten minutes ago


@pytest.mark.parametrize(
    ("time_of_day_s", "boot", "boot_s", "resumed_s", "confirmed"),
    [
        (NOW_S + 2 * HOUR_S, "boot", 1600.0, NOW_S, True),  # set ahead: ten minutes have passed
        (NOW_S - HOUR_S, "boot", 1600.0, NOW_S, True),  # set back
        (NOW_S + 2.0, "boot", 1600.0, NOW_S + 2.0, True),  # adjusted a little
        (NOW_S - 2.0, "boot", 1600.0, NOW_S - 2.0, True),
        (
            NOW_S + 8 * HOUR_S,
            "boot",
            1600.0 + 8 * HOUR_S,
            NOW_S + 8 * HOUR_S,
            True,
        ),  # it was suspended
        (NOW_S + 8 * HOUR_S, "other", 60.0, NOW_S - 30.0, False),  # a downtime, or a wrong clock
        (NOW_S - HOUR_S, "other", 60.0, NOW_S - 30.0, False),  # it was set back, or is not set yet
        (NOW_S - 25.0, "other", 60.0, NOW_S - 25.0, True),
        (NOW_S + HOUR_S, "", 1600.0, NOW_S - 30.0, False),  # boots cannot be told apart
    ],
)
def test_time_goes_on_by_the_boot_clock_where_the_time_of_day_differs_from_it(
    time_of_day_s: float, boot: str, boot_s: float, resumed_s: float, confirmed: bool
) -> None:
    last_commit_s = NOW_S - 30.0
    start = resumed(ANCHOR, last_commit_s, time_of_day_s, boot, boot_s)
    assert start == Resumed(resumed_s, confirmed)


def test_time_goes_on_from_the_last_commit_at_the_earliest() -> None:
    late = NOW_S + HOUR_S
    assert resumed(ANCHOR, late, NOW_S, "boot", 1600.0).at_s == late
    assert resumed(ANCHOR, NOW_S, NOW_S - 5.0, "boot", 1595.0).at_s == NOW_S


def test_boots_that_cannot_be_told_apart_prove_nothing() -> None:
    unknown = ClockAnchor("", 1000.0, NOW_S - 600.0)
    assert resumed(unknown, NOW_S, NOW_S + HOUR_S, "", 1600.0) == Resumed(NOW_S, False)


def test_first_start_of_a_cluster_believes_the_time_of_day() -> None:
    assert resumed(None, 0.0, NOW_S, "boot", 1.0) == Resumed(NOW_S, True)


def test_time_that_was_not_confirmed_stays_so_in_its_boot_until_the_clock_is_right() -> None:
    anchor = ClockAnchor("boot", 1000.0, NOW_S, confirmed=False)
    assert resumed(anchor, NOW_S, NOW_S + HOUR_S, "boot", 1060.0) == Resumed(NOW_S + 60.0, False)
    assert resumed(anchor, NOW_S, NOW_S + 61.0, "boot", 1060.0) == Resumed(NOW_S + 61.0, True)


@pytest.mark.parametrize(
    ("words", "leap_s", "is_over", "ahead_s"),
    [
        (ClockWords([5.0], [HOUR_S], 3), HOUR_S, False, 5.0),  # the clock is ahead, says one
        (ClockWords([HOUR_S - 3.0]), HOUR_S, False, HOUR_S),  # it was a downtime
        (ClockWords([HOUR_S, 5.0]), HOUR_S, False, 5.0),
        (ClockWords([300.0]), -HOUR_S, False, 300.0),  # the clock is behind
        (ClockWords([-1.0]), -HOUR_S, False, 0.0),
        (ClockWords([], [HOUR_S], 1), HOUR_S, False, None),  # another may prove it
        (ClockWords([], [HOUR_S], 1), HOUR_S, True, HOUR_S),
        (ClockWords([], [HOUR_S]), HOUR_S, False, HOUR_S),  # all machines have booted
        (ClockWords([], [60.0]), HOUR_S, True, None),
        (ClockWords([], [-60.0]), -60.0, True, None),  # no time before the last commit
        (ClockWords([], [], 1), HOUR_S, True, None),
        (ClockWords(), HOUR_S, False, HOUR_S),  # nobody can be asked
        (ClockWords(), -HOUR_S, False, 0.0),
    ],
)
def test_time_is_ahead_as_agents_confirm(
    words: ClockWords, leap_s: float, is_over: bool, ahead_s: float | None
) -> None:
    assert confirmed_ahead_s(words, leap_s, is_over) == ahead_s
