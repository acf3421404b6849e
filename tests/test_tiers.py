"""The choice of the tests that ``make test`` runs."""

import pytest
from tests.databases import DATABASES
from tests.tiers import (
    COLLECTED,
    LONG_S,
    VERY_LONG_S,
    WHOLE_BUDGET_S,
    read_times,
    thorough_among,
)


def test_long_tests_are_thorough_but_for_the_quickest_of_a_file_that_is_not_very_long() -> None:
    names = ["a.py::one", "a.py::two", "b.py::one", "b.py::two[x]", "b.py::two[y]", "c.py::one"]
    times = {"a.py::one": 3.0, "b.py::one": 9.0, "b.py::two[x]": 5.0, "b.py::two[y]": 7.0}
    times["c.py::one"] = VERY_LONG_S
    assert thorough_among(names, times) == {"a.py::one", "b.py::one", "b.py::two[y]", "c.py::one"}


def test_of_a_file_of_control_one_test_runs_on_postgresql() -> None:
    names = [f"tests/control/a.py::{test}[{on}]" for test in "xy" for on in DATABASES]
    assert thorough_among(names, {}) == {"tests/control/a.py::y[postgresql]"}
    elsewhere = [each.replace("control", "store") for each in names]
    assert thorough_among(elsewhere, {}) == set()


def test_tests_of_every_run_take_no_longer_than_they_may() -> None:
    times = read_times()
    long = thorough_among(times, times)
    assert sum(taken_s for name, taken_s in times.items() if name not in long) <= WHOLE_BUDGET_S
    assert min(times.values()) >= LONG_S


def test_tests_that_are_known_to_be_long_are_there(request: pytest.FixtureRequest) -> None:
    """Once one was renamed, ``make times`` finds out what it takes."""
    is_whole = request.config.args == request.config.getini("testpaths")
    there = request.config.stash[COLLECTED]
    assert not is_whole or read_times().keys() <= there
