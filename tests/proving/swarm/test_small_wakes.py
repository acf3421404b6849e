"""Wakes that do a part of what they would, so that the rest of it is done in later ones, as it is
in a cluster with many thousands of sessions."""

import pytest
from proving.swarm.invariants.defects import ControllerRests
from proving.swarm.runner import INVARIANTS, run
from proving.swarm.scenario import load_scenario

from muster.control import inbox
from muster.control.engine import coordinator

_JUDGED = [each for each in INVARIANTS if each is not ControllerRests]
"""Handlers find more to do, of course, once such a wake is over."""
_ENDS = load_scenario(
    """
seed: 1
about: Jobs end with many sessions that run, while the controller dies.
steps:
- submit:
    number: 0
    spec: {command: [x], tasks: 12, max_retries_failure: 100, max_retries_preemption: 100,
           resources: {cpu: 1}}
    user: 0
- submit:
    number: 1
    spec: {command: [x], tasks: 12, timeout: 2, max_retries_failure: 100, resources: {cpu: 1}}
    user: 1
- submit:
    number: 2
    spec: {command: [x], tasks: 6, coscheduled: true, resources: {cpu: 1}}
    user: 0
- wait: {seconds: 0.5}
- cancel: {submission: 0}
- kill_controller: {away_s: 0.2}
- wait: {seconds: 0.5}
- misfortune: {kind: killed after the commit, away_s: 0.2}
- wait: {seconds: 1.2}
- misfortune: {kind: killed among the sends, away_s: 0.2, sends: 1}
- wait: {seconds: 2}
- submit:
    number: 3
    spec: {command: [x], tasks: 12, max_retries_failure: 0, max_task_failures: 2,
           resources: {cpu: 1}}
    user: 0
- wait: {seconds: 1}
- misfortune: {kind: killed after the commit, away_s: 0.2}
- cancel: {submission: 2}
""",
    "ends.yaml",
)


@pytest.fixture(autouse=True)
def small_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "MAX_LATER", 1)
    for module in (coordinator, inbox):
        monkeypatch.setattr(module, "MAX_RECORDS", 2)


def test_no_seed_violates_an_invariant_though_wakes_do_little() -> None:
    for seed in range(30, 35):
        result = run(seed, invariants=_JUDGED)
        assert not result.violation, f"seed {seed}: {result.violation}"


def test_ends_of_jobs_that_take_many_wakes_are_whole_though_the_controller_dies() -> None:
    for seed in range(5):
        result = run(seed, _ENDS.steps, invariants=_JUDGED)
        assert not result.violation, f"seed {seed}: {result.violation}"
