"""Time that goes on where it was, whatever is done to the machine's clock."""

import time
from types import SimpleNamespace

import pytest

from muster.core.clock import ClockAnchor, SteadyClock, resumed_at, said_leap

HOUR_S = 3600.0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The machine's two clocks, to be set by hand."""
    hands = SimpleNamespace(wall_s=1_700_000_000.0, monotonic_s=500.0)
    monkeypatch.setattr(time, "time", lambda: hands.wall_s)
    monkeypatch.setattr(time, "monotonic", lambda: hands.monotonic_s)
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
    steady.go_on_from(resumed_at(None, written_s, steady.now(), "a", 9.0))
    assert steady.now() == written_s
    machine.monotonic_s += 60.0
    assert steady.now() == written_s + 60.0


def test_leap_is_how_far_the_time_of_day_is_ahead(machine: SimpleNamespace) -> None:
    steady = SteadyClock()
    machine.wall_s += 2 * HOUR_S
    assert steady.leap_s() == 2 * HOUR_S
    assert said_leap(2 * HOUR_S).startswith("the time of day is 2h00m ahead of the cluster's time")
    assert said_leap(-60.0).startswith("the time of day is 1m00s behind the cluster's time")


NOW_S = 1_700_000_000.0
ANCHOR = ClockAnchor("boot", boot_s=1000.0, at_s=NOW_S - 600.0)  # ten minutes ago


@pytest.mark.parametrize(
    ("time_of_day_s", "boot", "boot_s", "resumed_s"),
    [
        (NOW_S + 2 * HOUR_S, "boot", 1600.0, NOW_S),  # set ahead: ten minutes have passed
        (NOW_S - HOUR_S, "boot", 1600.0, NOW_S),  # set back
        (NOW_S + 2.0, "boot", 1600.0, NOW_S + 2.0),  # adjusted a little
        (NOW_S - 2.0, "boot", 1600.0, NOW_S - 2.0),
        (NOW_S + 8 * HOUR_S, "boot", 1600.0 + 8 * HOUR_S, NOW_S + 8 * HOUR_S),  # it was suspended
        (NOW_S + 8 * HOUR_S, "other", 60.0, NOW_S + 8 * HOUR_S),  # nothing proves it wrong
        (NOW_S - HOUR_S, "other", 60.0, NOW_S - 30.0),  # it was set back, or is not set yet
        (NOW_S + HOUR_S, "", 1600.0, NOW_S + HOUR_S),  # this system cannot tell its boots apart
    ],
)
def test_time_goes_on_by_the_boot_clock_where_the_time_of_day_differs_from_it(
    time_of_day_s: float, boot: str, boot_s: float, resumed_s: float
) -> None:
    last_commit_s = NOW_S - 30.0
    assert resumed_at(ANCHOR, last_commit_s, time_of_day_s, boot, boot_s) == resumed_s


def test_time_goes_on_from_the_last_commit_at_the_earliest() -> None:
    late = NOW_S + HOUR_S
    assert resumed_at(ANCHOR, late, NOW_S, "boot", 1600.0) == late
    assert resumed_at(ANCHOR, NOW_S, NOW_S - 5.0, "boot", 1595.0) == NOW_S


def test_boots_that_cannot_be_told_apart_prove_nothing() -> None:
    unknown = ClockAnchor("", 1000.0, NOW_S - 600.0)
    assert resumed_at(unknown, NOW_S, NOW_S + HOUR_S, "", 1600.0) == NOW_S + HOUR_S
