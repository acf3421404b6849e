"""The moment after which no test is begun, so that a run ends in time on a slow machine too."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(*options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout


def test_tests_that_have_not_begun_in_time_are_skipped_and_counted() -> None:
    told = run("--until", "1", "tests/core/test_task_ranges.py")
    assert "no time was left" in told
    assert " passed" not in told
    assert " skipped" in told
    assert " skipped" not in run("--until", "9e9", "tests/core/test_task_ranges.py")
