"""The tiers of the tests: ``make test`` runs all that take little time, and of each file the
quickest if that is not very long. Of a file's tests of control that run on both databases, it runs
all on SQLite and one on PostgreSQL: what differs between these is tested with the store.
``make test-all`` runs the others too, which are marked ``thorough``.

``tests/times.txt`` has the seconds of each test that is long, as ``make times`` measured them last;
tests that it does not name are short.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("times.txt")
LONG_S = 1.0
"""Seconds from which on a test is long."""
VERY_LONG_S = 30.0
"""Seconds from which on a test is left out even if it is the quickest of its file."""
THOROUGH = {Path(__file__).with_name(folder) for folder in ("attacks", "benchmarks")}
"""Folders whose tests are thorough whatever they take: nothing may run beside them."""
WHOLE_BUDGET_S = 900.0
"""Seconds that the tests of ``make test`` may take together; several run at a time."""


def read_times() -> dict[str, float]:
    """The seconds of the long tests, by their node ids."""
    lines = (line for line in FILE.read_text().splitlines() if not line.startswith("#"))
    return {name: float(taken_s) for taken_s, name in (line.split(" ", 1) for line in lines)}


def thorough_among(names: Iterable[str], times: Mapping[str, float]) -> set[str]:
    """The tests that ``make test`` leaves out: the long ones, but for the quickest of each file
    unless that is very long, and those that one on the other database stands for."""
    by_file = defaultdict(list)
    for name in names:
        by_file[name.partition("::")[0]].append(name)
    found: set[str] = set()
    for file, its in by_file.items():
        if file.startswith(ON_BOTH):
            found.update([name for name in its if ON_POSTGRESQL in name][1:])
        quickest = min(its, key=lambda name: times.get(name, 0.0))
        if times.get(quickest, 0.0) < VERY_LONG_S:
            its.remove(quickest)
        found.update(name for name in its if name in times)
    return found


ON_BOTH = "tests/control/"
"""The folder whose tests run on both databases."""
ON_POSTGRESQL = "[postgresql"

COLLECTED = pytest.StashKey[set[str]]()
"""The node ids of all tests of a run, before some were left out by their markers."""


def mark_thorough(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Mark the tests that ``make test`` leaves out; those marked ``always`` it never does."""
    collected = [item.nodeid for item in items]
    config.stash[COLLECTED] = {*collected}
    names = thorough_among(collected, read_times())  # in their order, which all workers have
    for item in items:
        if item.get_closest_marker("always") is not None:
            continue
        if item.nodeid in names or not THOROUGH.isdisjoint(item.path.parents):
            item.add_marker("thorough")


class TimesWriter:
    """Writes ``times.txt`` anew at the end of a run of all tests."""

    def __init__(self) -> None:
        self._taken_s: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._taken_s[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        long = {name: taken_s for name, taken_s in self._taken_s.items() if taken_s >= LONG_S}
        lines = [f"{taken_s:.1f} {name}" for name, taken_s in sorted(long.items())]
        speed = f"a million steps of a loop take {_loop_s():.3f} s"
        told = f"# Written by `make times` on a machine on which {speed}."
        FILE.write_text("\n".join([told, *lines, ""]))


def _loop_s() -> float:
    """The processor time of a million steps of a loop: how fast this machine is."""
    began_s = time.process_time()
    step = 0
    while step < 1_000_000:
        step += 1
    return time.process_time() - began_s
