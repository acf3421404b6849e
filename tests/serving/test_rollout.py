"""Roll-outs, with the replicas of both revisions after each step."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from tests.serving.replicas_of import World, replicas, written

from muster.core.specs.serving import UpdateSpec
from muster.serving.replicas import Standing
from muster.serving.rollout import Rollout, RolloutCode, RolloutStep, RolloutVerdict, advance

NEW = Rollout(to_revision=2, from_revision=1, progress_at=0.0)
GOES_ON, DONE, FAILED = RolloutVerdict.GOES_ON, RolloutVerdict.DONE, RolloutVerdict.FAILED


def update(**keys: object) -> UpdateSpec:
    return UpdateSpec.model_validate({"min_healthy_time": 1.0, **keys})


class Run:
    """A roll-out in a world that obeys it."""

    def __init__(self, there: str, spec: UpdateSpec, wanted: int, rollout: Rollout = NEW) -> None:
        self.world = World(replicas(there))
        self.spec = spec
        self.wanted = wanted
        self.rollout = rollout
        self.seen: Mapping[int, tuple[int, int]] = {}
        self.counters = ""

    def step(self) -> RolloutStep:
        rollout = replace(self.rollout, failed_starts=self.world.failed)
        step = advance(
            rollout,
            self.spec,
            self.wanted,
            self.world.all,
            self.seen,
            self.world.now,
            self.counters,
        )
        self.rollout = step.rollout
        self.world.obey(step.create, step.remove)
        return step

    def steps(self, most: int = 100) -> Iterator[RolloutStep]:
        """The steps a second apart, until the last."""
        for _ in range(most):
            step = self.step()
            yield step
            if step.verdict is not GOES_ON:
                return
            self.world.later()

    def until(self, code: RolloutCode) -> RolloutStep:
        return next(step for step in self.steps() if step.why.code is code)

    def __str__(self) -> str:
        return written(self.world.all)


@pytest.mark.parametrize(
    ("surge", "unavailable", "expected"),
    [
        (
            1,
            0,
            [
                "1:aaaa 2:s",
                "1:aaaa 2:h",
                "1:aaax 2:a",
                "1:aaa 2:as",
                "1:aaa 2:ah",
                "1:aax 2:aa",
                "1:aa 2:aas",
                "1:aa 2:aah",
                "1:ax 2:aaa",
                "1:a 2:aaas",
                "1:a 2:aaah",
                "1:x 2:aaaa",
            ],
        ),
        (  # all GPUs are in use: old ones make room, which is there once they have ended
            0,
            2,
            [
                "1:aaxx",
                "1:aa 2:ss",
                "1:aa 2:hh",
                "1:xx 2:aa",
                "2:aass",
                "2:aahh",
                "2:aaaa",
            ],
        ),
        (
            "50%",
            "25%",
            [
                "1:aaax 2:ss",
                "1:aaa 2:hhs",
                "1:axx 2:aah",
                "1:x 2:aaas",
                "2:aaah",
                "2:aaaa",
            ],
        ),
        ("100%", 0, ["1:aaaa 2:ssss", "1:aaaa 2:hhhh", "1:xxxx 2:aaaa"]),
        (0, "10%", ["1:aaax", "1:aaa 2:s", "1:aaa 2:h"]),  # both are 0 of four: one may be missing
        (0, 0, ["1:aaax", "1:aaa 2:s", "1:aaa 2:h"]),
    ],
)
def test_rolling_update_step_by_step(
    surge: int | str, unavailable: int | str, expected: list[str]
) -> None:
    run = Run("1:aaaa", update(surge=surge, unavailable=unavailable), 4)
    seen = [(str(run), step.verdict) for step in run.steps(most=len(expected))]
    assert [there for there, _ in seen] == expected
    assert {verdict for _, verdict in seen[:-1]} <= {GOES_ON}
    assert (seen[-1][1] is DONE) is expected[-1].endswith("2:aaaa")


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ("1:aauu", "1:aaxx 2:s"),  # unhealthy ones go at once, and hold their room until they end
        ("1:aaa", "1:aaa 2:ss"),
        ("1:aaaaxx", "1:aaaaxx"),  # nothing is made while the surge is held
        ("1:aaaax", "1:aaaax"),
        ("1:aahh 2:a", "1:aahx 2:a"),  # of those that serve, the young first
        ("1:aaaA 2:a", "1:aaax 2:a"),
        ("1:a 2:aaau", "1:a 2:aaau"),  # it has a limit of its own
        ("1:aaaa 2:S", "1:aaaa 2:x"),  # it starts where nothing stays
        ("1:a 2:aaaA", "1:x 2:aaaA"),
        ("1:aa 2:aa 3:ss", "1:aa 2:aa 3:xx"),  # of a roll-out that was overtaken
    ],
)
def test_rolling_update_from_anywhere(there: str, expected: str) -> None:
    run = Run(there, update(surge=1, unavailable=0), 4)
    run.step()
    assert str(run) == expected


def test_first_rollout_makes_all_at_once_whatever_the_strategy() -> None:
    for strategy in ("rolling", "blue-green", "canary"):
        run = Run("", update(strategy=strategy), 3, replace(NEW, from_revision=None))
        assert [str(run) for _ in run.steps()] == ["2:sss", "2:hhh", "2:aaa"]


def test_deployment_without_replicas_has_its_revision_at_once() -> None:
    run = Run("1:aa", update(strategy="canary"), 0)
    assert [(str(run), step.verdict) for step in run.steps()] == [("1:xx", DONE)]


def test_blue_green_changes_over_at_once_and_keeps_the_old_for_a_while() -> None:
    run = Run("1:aaa", update(strategy="blue-green", keep_old=2.0), 3)
    seen = [(str(run), dict(step.weights), step.why.code.value) for step in run.steps()]
    assert seen == [
        ("1:aaa 2:sss", {2: 0}, "replacing"),
        ("1:aaa 2:hhh", {2: 0}, "replacing"),
        ("1:aaa 2:aaa", {2: 100}, "watching"),
        ("1:aaa 2:aaa", {2: 100}, "watching"),
        ("1:xxx 2:aaa", {2: 100}, "complete"),
    ]


def test_blue_green_without_keeping_changes_over_and_is_done() -> None:
    run = Run("1:aa", update(strategy="blue-green", keep_old=0.0), 2)
    *_, last = run.steps()
    assert (str(run), last.verdict, dict(last.weights)) == ("1:xx 2:aa", DONE, {2: 100})


def test_canary_gets_more_requests_once_its_replicas_are_there_and_were_watched() -> None:
    steps = [{"weight": 10, "watch": 2.0}, {"weight": 50, "watch": 1.0}]
    run = Run("1:aaaa", update(strategy="canary", steps=steps, surge=1), 4)
    seen = [(str(run), dict(step.weights), step.why.code.value) for step in run.steps()]
    assert seen[:7] == [
        ("1:aaaa 2:s", {2: 0}, "replacing"),
        ("1:aaaa 2:h", {2: 0}, "replacing"),
        ("1:aaaa 2:a", {2: 10}, "watching"),
        ("1:aaaa 2:a", {2: 10}, "watching"),
        ("1:aaaa 2:as", {2: 10}, "replacing"),
        ("1:aaaa 2:ah", {2: 10}, "replacing"),
        ("1:aaaa 2:aa", {2: 50}, "watching"),
    ]
    assert seen[7:] == [  # from here on as if rolling
        ("1:aaxx 2:aa", {}, "replacing"),
        ("1:aa 2:aas", {}, "replacing"),
        ("1:aa 2:aah", {}, "replacing"),
        ("1:ax 2:aaa", {}, "replacing"),
        ("1:a 2:aaas", {}, "replacing"),
        ("1:a 2:aaah", {}, "replacing"),
        ("1:x 2:aaaa", {}, "complete"),
    ]


def test_canary_replaces_what_is_lost_of_the_old() -> None:
    run = Run("1:aaa", update(strategy="canary"), 3)
    run.until(RolloutCode.WATCHING)
    run.world.turn("1a", Standing.HELD)
    run.world.later()
    step = run.step()
    assert (step.create, str(run)) == ({1: 1}, "1:aas 2:a")


def test_canary_takes_nothing_away_that_serves_while_old_ones_are_missing() -> None:
    steps = [{"weight": 10, "watch": 10.0}]
    run = Run("1:aa 2:aaas", update(strategy="canary", steps=steps), 4)
    assert [str(run) for _ in zip(range(3), run.steps(), strict=False)] == [
        "1:aass 2:aaax",
        "1:aahh 2:aaa",
        "1:aaaa 2:axx",
    ]


def test_canary_that_is_not_good_all_the_time_is_watched_anew() -> None:
    steps = [{"weight": 50, "watch": 3.0}]
    run = Run("1:aa", update(strategy="canary", steps=steps), 2)
    run.until(RolloutCode.WATCHING)
    began = run.world.now
    (route,) = (each.route for each in run.world.all if each.revision == 2)
    run.world.turn(route, Standing.UNHEALTHY)
    run.world.later()
    assert run.step().why.code is RolloutCode.REPLACING
    run.world.turn(route, Standing.AVAILABLE)
    run.world.later()
    step = run.step()
    assert (step.why.code, step.wake_at) == (RolloutCode.WATCHING, began + 2 + 3)
    assert dict(step.weights) == {2: 50}


@pytest.mark.parametrize(
    ("requests", "failures", "verdict"),
    [(19, 19, GOES_ON), (20, 1, GOES_ON), (20, 2, FAILED), (1000, 50, GOES_ON), (1000, 51, FAILED)],
)
@pytest.mark.parametrize("strategy", ["canary", "blue-green"])
def test_errors_of_the_new_revision_take_the_old_back(
    strategy: str, requests: int, failures: int, verdict: RolloutVerdict
) -> None:
    run = Run("1:aaaa", update(strategy=strategy), 4)
    run.seen = {1: (5000, 4000), 2: (100, 100)}  # it was rolled out once before
    run.rollout = Rollout(2, 1, 0.0, requests=100, failures=100)
    run.until(RolloutCode.WATCHING)
    assert (run.rollout.requests, run.rollout.failures) == (100, 100), "it counts by the stage"
    run.seen = {1: (6000, 5000), 2: (100 + requests, 100 + failures)}
    step = run.step()
    assert step.verdict is verdict
    if verdict is FAILED:
        numbers = {"requests": requests, "failures": failures, "max_error_rate": 5.0}
        assert (step.why.code, dict(step.why.numbers)) == (RolloutCode.ERRORS, numbers)
        assert dict(step.weights) == {2: 0}
        new = {"canary": "x", "blue-green": "xxxx"}[strategy]
        assert str(run) == f"1:aaaa 2:{new}"


def test_counters_that_were_lost_begin_anew() -> None:
    run = Run("1:aaaa", update(strategy="canary"), 4)
    run.seen = {2: (100, 100)}
    run.rollout = Rollout(2, 1, 0.0, requests=100, failures=100)
    run.until(RolloutCode.WATCHING)
    run.seen = {2: (50, 1)}
    assert run.step().verdict is GOES_ON
    run.seen = {2: (50, 3)}
    assert run.step().verdict is FAILED


@pytest.mark.parametrize(
    ("wanted", "failed", "verdict"),
    [(1, 2, GOES_ON), (1, 3, FAILED), (6, 17, GOES_ON), (6, 18, FAILED), (90, 20, FAILED)],
)
def test_budget_of_failed_starts(wanted: int, failed: int, verdict: RolloutVerdict) -> None:
    run = Run(f"1:{'a' * wanted}", update(), wanted)
    run.world.failed = failed
    step = run.step()
    assert step.verdict is verdict
    if verdict is FAILED:
        budget = min(3 * wanted, 20)
        assert dict(step.why.numbers) == {"failed": failed, "budget": budget}
        assert str(run) == f"1:{'a' * wanted}"


@pytest.mark.parametrize(
    ("there", "surge", "unavailable", "expected"),
    [
        ("1:aaa 2:hs", 1, 0, "1:aaa 2:hx"),
        ("1:a 2:aaas", 1, 0, "1:a 2:aaax"),  # old ones are made once there is room
        ("1:a 2:aaau", 1, 1, "1:a 2:aaxx"),
        ("1:a 2:aaa", 1, 0, "1:as 2:aaa"),
        ("1:a 2:aaa", 0, 1, "1:a 2:aax"),
        ("1:aaaa 2:a", 1, 0, "1:aaaa 2:x"),
    ],
)
def test_rollout_without_progress_goes_back_and_keeps_enough(
    there: str, surge: int, unavailable: int, expected: str
) -> None:
    run = Run(there, update(surge=surge, unavailable=unavailable), 4)
    run.rollout = replace(NEW, best=4)
    run.world.now = 599.0
    assert run.step().wake_at == 600.0
    run = Run(there, run.spec, 4, replace(NEW, best=4))
    run.world.now = 600.0
    step = run.step()
    assert (step.verdict, step.why.code) == (FAILED, RolloutCode.NO_PROGRESS)
    assert (str(run), dict(step.weights)) == (expected, {})


def test_first_rollout_that_fails_keeps_what_serves() -> None:
    run = Run("2:ahsu", update(), 4, replace(NEW, from_revision=None, best=1))
    run.world.now = 600.0
    step = run.step()
    assert (step.verdict, str(run)) == (FAILED, "2:ahxx")


def test_each_further_replica_begins_the_deadline_anew() -> None:
    run = Run("1:aa 2:a", update(), 3)
    run.world.now = 500.0
    assert run.step().verdict is GOES_ON
    assert (run.rollout.best, run.rollout.progress_at) == (1, 500.0)


def test_long_watch_is_no_want_of_progress() -> None:
    steps = [{"weight": 50, "watch": 3600.0}]
    run = Run("1:aa", update(strategy="canary", steps=steps), 2)
    watching = run.until(RolloutCode.WATCHING)
    run.world.now += 3000.0
    assert run.step().rollout == watching.rollout
    (route,) = (each.route for each in run.world.all if each.revision == 2)
    run.world.turn(route, Standing.UNHEALTHY)
    assert run.step().verdict is GOES_ON
    run.world.now += 599.0
    assert run.step().verdict is GOES_ON
    run.world.now += 1.0
    assert run.step().why.code is RolloutCode.NO_PROGRESS


def test_replica_that_flaps_does_not_put_the_deadline_off() -> None:
    steps = [{"weight": 50, "watch": 60.0}]
    run = Run("1:aa", update(strategy="canary", steps=steps), 2)
    run.until(RolloutCode.WATCHING)
    (route,) = (each.route for each in run.world.all if each.revision == 2)
    for bad_s in range(0, 600, 30):
        run.world.turn(route, Standing.UNHEALTHY)
        assert run.step().verdict is GOES_ON, f"after {bad_s} s"
        run.world.now += 30.0
        run.world.turn(route, Standing.AVAILABLE)
        assert run.step().why.code is RolloutCode.WATCHING
        run.world.now += 50.0
    run.world.turn(route, Standing.UNHEALTHY)
    assert run.step().why.code is RolloutCode.NO_PROGRESS


def test_nothing_happens_in_a_pause_and_no_time_passes() -> None:
    steps = [{"weight": 50, "watch": 60.0}]
    run = Run("1:aa", update(strategy="canary", steps=steps), 2)
    began = run.until(RolloutCode.WATCHING).wake_at
    assert began is not None
    run.rollout = run.rollout.paused(run.world.now)
    run.world.turn("1a", Standing.UNHEALTHY)
    run.world.now += 10_000.0
    run.world.failed = 100
    step = run.step()
    assert (step.verdict, step.why.code) == (GOES_ON, RolloutCode.PAUSED)
    assert (step.create, step.remove, dict(step.weights)) == ({}, (), {2: 50})
    assert run.rollout.paused(run.world.now) == run.rollout
    run.world.failed = 0
    run.rollout = run.rollout.resumed(run.world.now)
    assert run.rollout.resumed(1e9) == run.rollout
    assert run.step().wake_at == began + 10_000.0


@pytest.mark.parametrize(
    ("surge", "there", "expected"),
    [
        (1, "1:aa 2:aa", "1:aa 2:aa"),
        (1, "1:aaa 2:as", "1:aaa 2:as"),  # one more than are wanted stays as it is
        (1, "1:a 2:aa", "1:as 2:aa"),
        (1, "1:u 2:aa", "1:su 2:aa"),  # one that is sick is replaced once it is evicted
        (1, "1:ax 2:aa", "1:asx 2:aa"),
        (0, "1:ax 2:aa", "1:ax 2:aa"),  # its room is not free yet
        (1, "2:aa", "1:ss 2:aa"),
    ],
)
def test_replicas_that_are_lost_in_a_pause_are_made_again_of_the_former_revision(
    surge: int, there: str, expected: str
) -> None:
    run = Run(there, update(surge=surge, unavailable=1), 4, NEW.paused(0.0))
    assert run.step().why.code is RolloutCode.PAUSED
    assert str(run) == expected


def test_old_replicas_that_are_lost_in_a_paused_stage_are_made_again_beside_the_new() -> None:
    run = Run("1:a 2:aa", update(strategy="blue-green"), 2, NEW.paused(0.0))
    run.step()
    assert str(run) == "1:as 2:aa"


def test_number_may_change_meanwhile() -> None:
    run = Run("1:aaaa", update(surge=1), 4)
    for _ in zip(range(8), run.steps(), strict=False):
        pass
    assert str(run) == "1:aa 2:aah"
    run.wanted = 2
    run.step()
    assert str(run) == "1:xx 2:aax"
    run.wanted = 6
    *_, last = run.steps()
    assert (last.verdict, str(run)) == (DONE, "2:aaaaaa")


def test_next_look_is_when_a_replica_becomes_available() -> None:
    run = Run("1:aaa 2:h", update(min_healthy_time=30.0), 3)
    assert run.step().wake_at == 30.0
    run.world.now = 31.0  # it is not probed now
    assert run.step().wake_at == 600.0
