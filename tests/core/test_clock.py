"""Time that goes on where it was, whatever is done to the machine's clock."""

import time
from types import SimpleNamespace

import pytest

from muster.core.clock import SteadyClock

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
    steady.not_before(written_s)
    assert steady.now() == written_s
    machine.monotonic_s += 60.0
    assert steady.now() == written_s + 60.0


def test_moment_that_has_passed_leaves_the_clock_as_it_is(machine: SimpleNamespace) -> None:
    steady = SteadyClock()
    steady.not_before(machine.wall_s - HOUR_S)
    assert steady.now() == machine.wall_s
