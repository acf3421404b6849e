"""Requests and failures by which a stage of a roll-out is judged, where counts are lost."""

from tests.serving.test_rollout import FAILED, GOES_ON, Run, update

from muster.serving.rollout import RolloutCode


def test_stage_is_watched_anew_by_counters_that_began_anew() -> None:
    run = Run("1:aaaa", update(strategy="canary", steps=[{"weight": 50, "watch": 60}]), 4)
    run.counters = "of before"
    run.until(RolloutCode.WATCHING)
    run.seen = {2: (19, 19)}
    assert run.step().verdict is GOES_ON, "one request less than are looked at"
    run.world.now += 59
    run.counters = "of a restarted controller"
    run.seen = {2: (150, 9)}
    step = run.step()
    assert (step.verdict, step.why.code) == (FAILED, RolloutCode.ERRORS), "9 of 150 are too many"


def test_stage_without_enough_requests_is_watched_anew_by_other_counters() -> None:
    run = Run("1:aaaa", update(strategy="canary", steps=[{"weight": 50, "watch": 60}]), 4)
    run.counters = "of before"
    run.until(RolloutCode.WATCHING)
    run.world.now += 50
    run.counters = "of a restarted controller"
    stage = run.step().rollout.step
    run.world.now += 30
    assert run.step().rollout.step == stage
    run.world.now += 31
    assert run.step().rollout.step > stage


def test_time_without_a_controller_is_no_want_of_progress() -> None:
    run = Run("1:aaaa", update(progress_deadline=60), 4)
    run.counters = "of before"
    assert run.step().verdict is GOES_ON
    run.world.now += 1000
    run.counters = "of a restarted controller"
    assert run.step().verdict is GOES_ON
    run.world.now += 59
    assert run.step().verdict is GOES_ON
    run.world.now += 1
    step = run.step()
    assert (step.verdict, step.why.code) == (FAILED, RolloutCode.NO_PROGRESS)


def test_errors_of_a_replica_that_has_ended_count() -> None:
    run = Run("1:aaaa", update(strategy="canary"), 4)
    run.until(RolloutCode.WATCHING)
    run.seen = {2: (15, 15)}
    assert run.step().verdict is GOES_ON
    run.rollout = run.rollout.without(15, 15)
    run.seen = {2: (5, 0)}
    assert run.step().verdict is FAILED
