"""A run does what its steps say, and nothing else decides how."""

import pickle

from muster.simulate.swarm.invariants import Invariant, Violation
from muster.simulate.swarm.runner import Outcome, run
from muster.simulate.swarm.steps import Step


def test_controller_stays_away_for_as_long_as_the_step_that_kills_it_says() -> None:
    def lasts(away_s: float, *before: Step) -> float:
        return run(1, [*before, Step("kill_controller", {"away_s": away_s})]).seconds

    assert 28 < lasts(30) - lasts(1) < 30
    assert 28 < lasts(30, Step("unbar")) - lasts(1, Step("unbar")) < 30


def test_violation_comes_back_from_a_worker_as_it_was() -> None:
    outcome = Outcome(1, violation=Violation(Invariant.PAUSES, "task 2 began 8 times in 2 s"))
    violation = pickle.loads(pickle.dumps(outcome)).violation
    assert (violation.kind, str(violation)) == (Invariant.PAUSES, "task 2 began 8 times in 2 s")
