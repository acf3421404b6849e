"""Replicas that are taken away while a roll-out is paused."""

import pytest
from tests.serving.replicas_of import written
from tests.serving.test_rollout import NEW, Run, update

from muster.serving.rollout import RolloutCode


@pytest.mark.parametrize(
    ("there", "wanted", "left"),
    [
        ("1:aa 2:aa", 4, "1:aa 2:aa"),
        ("1:aaa 2:aa", 4, "1:aaa 2:aa"),  # the surge stays
        ("1:aaaa 2:aa", 2, "1:aa 2:a"),
        ("1:aa 2:aaaa", 2, "1:a 2:aa"),
        ("1:aau 2:as", 2, "1:aa 2:a"),  # those that do not serve go first
        ("1:aaa 2:ss", 2, "1:aaa"),
        ("1:aaaa", 0, ""),
    ],
)
def test_fewer_are_wanted_meanwhile(there: str, wanted: int, left: str) -> None:
    run = Run(there, update(surge=1, unavailable=1), wanted, NEW.paused(0.0))
    step = run.step()
    assert step.why.code is RolloutCode.PAUSED
    assert written([e for e in run.world.all if e.live and e.route not in step.remove]) == left


def test_new_ones_of_a_stage_are_not_taken_away_where_old_ones_are_missing() -> None:
    canary = update(strategy="canary", surge=1, unavailable=1)
    run = Run("2:aa", canary, 2, NEW.paused(0.0))
    assert run.step().remove == ()
