"""A run does what its steps say, and nothing else decides how."""

import pickle

import pytest
from proving.swarm.invariants.attempts import Pauses
from proving.swarm.judge import Invariant, Violation
from proving.swarm.runner import NO_ERROR, RunResult, run
from proving.swarm.steps import Step

from muster.scheduling.policy import guard


def test_controller_stays_away_for_as_long_as_the_step_that_kills_it_says() -> None:
    told: list[tuple[float, str]] = []
    steps = [Step("kill_controller", {"away_s": 30}), Step("wait", {"seconds": 31})]
    run(1, steps, tell=lambda moment, sentence: told.append((moment, sentence)))
    (killed,) = (at for at, sentence in told if sentence.startswith("-> kill_controller"))
    back = next(at for at, sentence in told if at > killed and "ALIVE" in sentence)
    assert 30 < back - killed < 61


def test_plugins_are_on_a_short_leash_during_a_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MAX_LINES", 77)
    seen: set[int] = set()
    run(1, [Step("wait", {"seconds": 1})], tell=lambda *_: seen.add(guard.MAX_LINES))
    assert seen == {10_000}
    assert guard.MAX_LINES == 77


def test_violation_comes_back_from_a_worker_as_it_was() -> None:
    result = RunResult(1, violation=Violation(Pauses.says, "task 2 began 8 times in 2 s"))
    violation = pickle.loads(pickle.dumps(result)).violation
    assert (violation.kind, str(violation)) == (Pauses.says, "task 2 began 8 times in 2 s")


def test_run_takes_the_same_course_whether_it_is_judged_or_not_and_tells_what_its_wakes_took() -> (
    None
):
    judged, bare = run(2), run(2, invariants=())
    assert (judged.wakes.count, judged.wakes.wrote) == (bare.wakes.count, bare.wakes.wrote)
    assert judged.evaluated
    assert not bare.evaluated
    assert 0 < bare.wakes.wrote < bare.wakes.count
    assert 0 < bare.wakes.processor_s < bare.processor_s


class Stumbles(Invariant):
    says = "it never comes to an answer"

    def between_steps(self) -> None:
        raise KeyError("nobody")


def test_error_of_an_invariant_is_told_of_its_seed_and_ends_no_soak() -> None:
    violation = run(1, [Step("wait", {"seconds": 1})], invariants=(Stumbles,)).violation
    assert violation is not None
    assert violation.kind == NO_ERROR
    assert "KeyError: 'nobody'" in str(violation)
