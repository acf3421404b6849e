"""Plug-ins that raise, loop or answer nonsense are refused with their name; nothing is changed."""

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.scheduling.clusters import (
    BOB,
    ask,
    box,
    cluster,
    contents,
    context,
    occupy,
    policy,
    running,
    session,
    where,
    workload,
)

from muster.core.ids import SessionId
from muster.core.reasons import Reason, ReasonCode, reason
from muster.core.resources import DeviceShare, Resources
from muster.scheduling.cluster.columns import Floats, Ints, Shares
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.explaining.explain import explain
from muster.scheduling.passes.placement import place
from muster.scheduling.passes.queue import Queue
from muster.scheduling.policy import guard
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.guard import (
    GuardedHook,
    GuardedSelector,
    GuardedSequencer,
    GuardedValidator,
    PluginFault,
)
from muster.scheduling.policy.hooks import BatchHook
from muster.scheduling.policy.plugins import PassContext
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import SessionWorkload, WorkloadClass

Act = Callable[[], Any]


@pytest.fixture(autouse=True)
def _short_leash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MAX_LINES", 2_000)


def raises() -> Any:
    raise ZeroDivisionError("division by zero")


def loops() -> Any:
    while True:
        pass


def recurses() -> Any:
    return recurses()


def hides() -> Any:
    while True:
        try:
            loops()
        except Exception:
            continue


def exits() -> Any:
    sys.exit("no licence")


ROUNDS = 3_000  # so that a test of a leash that lets go ends, and fails


def swallows() -> Any:
    for _ in range(ROUNDS):
        try:
            int("x")
        except:  # noqa: E722
            continue


def swallows_at_each_depth() -> Any:
    for _ in range(10):
        try:
            swallows()
        except BaseException:
            for _ in range(10):
                with contextlib.suppress(BaseException):
                    swallows()


def collects() -> Any:
    caught = []
    for _ in range(10):
        try:
            for _ in range(ROUNDS):
                pass
        except BaseException as error:
            caught.append(error)


def answers_at_last() -> Any:
    try:
        loops()
    except BaseException:
        return ()


def disguises() -> Any:
    try:
        loops()
    except BaseException:
        raise ValueError from None


def answering(answer: object) -> Act:
    return lambda: answer


MISDEEDS = [
    pytest.param(raises, r"raised ZeroDivisionError\('division by zero'\)", id="raises"),
    pytest.param(loops, "ran for more than 2000 lines in one call", id="loops"),
    pytest.param(hides, "ran for more than 2000 lines in one call", id="loops and catches all"),
    pytest.param(swallows, "ran for more than 2000 lines in one call", id="swallows all"),
    pytest.param(exits, r"raised SystemExit\('no licence'\)", id="exits"),
    pytest.param(recurses, "raised RecursionError|ran for more than", id="recurses"),
]


class Validator:
    """Does as told, from the ``after``-th call on."""

    def __init__(self, act: Act, after: int = 0) -> None:
        self._act = act
        self._calls_left = after

    def validate(self, workload: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        self._calls_left -= 1
        if self._calls_left >= 0:
            return ()
        answer: Sequence[Reason] = self._act()
        return answer


class Sequencer:
    dynamic = False

    def __init__(self, act: Act) -> None:
        self._act = act

    def key(self, session: SessionWorkload, context: PassContext) -> tuple[float, ...]:
        answer: tuple[float, ...] = self._act()
        return answer


class Selector:
    """Concentrated, but for what it is told to do; a stranger has no ``ranking``."""

    packs = False

    def __init__(self, score: Act | None = None, devices: Act | None = None) -> None:
        self._score, self._devices = score, devices
        self._builtin = Concentrated()

    def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
        answer: Floats = (
            self._score() if self._score else self._builtin.score(request, snapshot, candidates)
        )
        return answer

    def devices(self, request: Resources, snapshot: Snapshot, slot: int) -> Shares:
        answer: Shares = (
            self._devices() if self._devices else self._builtin.devices(request, snapshot, slot)
        )
        return answer


class Hook(BatchHook):
    def __init__(self, act: Act) -> None:
        self._act = act

    def on_schedule(self, workload: WorkloadClass) -> WorkloadClass:
        answer: WorkloadClass = self._act()
        return answer

    def before_start(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        answer: Mapping[str, str] = self._act()
        return answer

    def after_end(self, session: SessionId, succeeded: bool) -> None:
        self._act()


def refused(by: Policy, kind: str, why: str) -> None:
    """A pass and an explanation both fail with the plug-in's name, and leave no trace, even when
    some have been placed and room is held for another."""
    snapshot = cluster(a=box(cpu=4, gpus=2), b=box(cpu=4, gpus=2))
    held = running("x", "a", kernels=[ask(3)], runs_s=100)
    occupy(snapshot, held)
    queue = Queue(
        [
            session("small", ask(1, gpu=1), at=0),
            session("head", ask(4), ask(4), at=1),
            session("short", ask(1), at=2, runs_s=5),
            session("last", ask(2, gpu=1), at=3),
        ]
    )
    before = contents(snapshot)
    seen = context(snapshot, held)
    for act in (
        lambda: place(queue, snapshot, by, seen),
        lambda: explain(session("asked", ask(1, gpu=1), at=9), queue, snapshot, by, seen),
    ):
        with pytest.raises(PluginFault, match=why) as caught:
            act()
        assert (caught.value.kind, caught.value.name) == (kind, "stranger")
        assert str(caught.value).startswith(f"{kind} 'stranger' ")
        assert contents(snapshot) == before
        assert (len(queue), queue.rooms) == (4, {})
    assert "small" in where(place(queue, snapshot, policy(), seen))


# Validators


@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize(
    ("act", "why"),
    [
        *MISDEEDS,
        pytest.param(answering(None), "must answer reasons, not None", id="None"),
        pytest.param(answering(["no"]), r"must answer reasons, not \['no'\]", id="text"),
        pytest.param(answering(True), "must answer reasons, not True", id="bool"),
    ],
)
def test_validator_that_misbehaves_is_refused(act: Act, why: str, after: int) -> None:
    guarded = GuardedValidator("stranger", Validator(act, after))
    refused(replace(policy(), validators=(guarded,)), "validator", why)


def test_validator_that_behaves_decides() -> None:
    forbids = GuardedValidator("stranger", Validator(answering([reason(ReasonCode.LOST_RACE)])))
    snapshot = cluster(a=box())
    result = place(
        Queue([session("s", ask(1))]),
        snapshot,
        replace(policy(), validators=(forbids,)),
        context(snapshot),
    )
    assert where(result) == {"s": ["LOST_RACE"]}


# Sequencers


@pytest.mark.parametrize(
    ("act", "why"),
    [
        *MISDEEDS,
        pytest.param(answering(None), "must answer a tuple of numbers, not None", id="None"),
        pytest.param(answering([1.0]), "must answer a tuple of numbers", id="list"),
        pytest.param(answering(("a",)), "must answer a tuple of numbers", id="text"),
        pytest.param(answering((float("nan"),)), "must answer a tuple of numbers", id="NaN"),
    ],
)
def test_sequencer_that_misbehaves_is_refused(act: Act, why: str) -> None:
    guarded = GuardedSequencer("stranger", Sequencer(act))
    refused(replace(policy(), sequencer=guarded), "sequencer", why)


def test_sequencer_that_says_nothing_of_itself_is_taken_to_be_dynamic() -> None:
    class Silent:
        def key(self, session: SessionWorkload, context: PassContext) -> tuple[float, ...]:
            return ()

    assert GuardedSequencer("stranger", Silent()).dynamic
    assert not GuardedSequencer("stranger", Sequencer(answering(()))).dynamic


def test_sequencer_whose_keys_have_other_lengths_than_its_first_is_refused() -> None:
    keys = iter([(1.0,), (float("inf"),), (float("-inf"),), (1.0, 2.0)])
    guarded = GuardedSequencer("stranger", Sequencer(lambda: next(keys)))
    seen = context(cluster(a=box()))
    for _ in range(3):
        assert len(guarded.key(session("s", ask(1)), seen)) == 1
    with pytest.raises(PluginFault, match=r"1 numbers as at first, not \(1.0, 2.0\)"):
        guarded.key(session("s", ask(1)), seen)


# Selectors


@pytest.mark.parametrize(
    ("act", "why"),
    [
        *MISDEEDS,
        pytest.param(answering(None), "must answer", id="None"),
        pytest.param(answering("high"), "must answer numbers, not 'high'", id="text"),
        pytest.param(answering(np.zeros((2, 2))), "must answer a finite number for each", id="2D"),
        pytest.param(answering(np.zeros(9)), "must answer a finite number for each", id="too many"),
        pytest.param(answering(1.0), "must answer a finite number for each", id="one for all"),
        pytest.param(answering([np.nan, 1]), "must answer a finite number for each", id="NaN"),
        pytest.param(answering([np.inf, 1]), "must answer a finite number for each", id="infinite"),
    ],
)
def test_selector_whose_scores_are_nonsense_is_refused(act: Act, why: str) -> None:
    guarded = GuardedSelector("stranger", Selector(score=act))
    refused(replace(policy(), selector=guarded), "selector", why)


WHOLE = "must answer 1 devices of which 1000/1000 is free"


@pytest.mark.parametrize(
    ("act", "why"),
    [
        *MISDEEDS,
        pytest.param(answering(None), WHOLE, id="None"),
        pytest.param(answering(()), WHOLE, id="none"),
        pytest.param(answering(3), WHOLE, id="a number"),
        pytest.param(answering((0,)), WHOLE, id="numbers"),
        pytest.param(answering((DeviceShare(0, 500),)), WHOLE, id="too little"),
        pytest.param(answering((DeviceShare(7, 1000),)), WHOLE, id="not there"),
        pytest.param(answering((DeviceShare(-1, 1000),)), WHOLE, id="negative"),
        pytest.param(answering((DeviceShare(0, 1000), DeviceShare(1, 1000))), WHOLE, id="too many"),
        pytest.param(answering((DeviceShare(0, 1000),) * 2), WHOLE, id="one twice"),
        pytest.param(answering(iter([DeviceShare(0, 1000)])), WHOLE, id="an iterator"),
    ],
)
def test_selector_whose_devices_are_infeasible_is_refused(act: Act, why: str) -> None:
    guarded = GuardedSelector("stranger", Selector(devices=act))
    refused(replace(policy(), selector=guarded), "selector", why)


def test_selector_that_names_a_held_device_is_refused() -> None:
    snapshot = cluster(a=box(cpu=4, gpus=2))
    stuck = Selector(devices=answering((DeviceShare(1, 1000),)))
    by = replace(policy(), selector=GuardedSelector("stranger", stuck))
    before = contents(snapshot)
    queue = Queue([session(name, ask(1, gpu=1)) for name in "st"])
    with pytest.raises(PluginFault, match=WHOLE):
        place(queue, snapshot, by, context(snapshot))
    assert contents(snapshot) == before


def test_selector_that_names_a_device_of_another_model_is_refused() -> None:
    snapshot = cluster(a=box(cpu=4, gpus=1, model="A100"))
    wants = replace(ask(1, gpu=1), gpu_models=("H100",))
    guarded = GuardedSelector("stranger", Selector(devices=answering((DeviceShare(0, 1000),))))
    with pytest.raises(PluginFault, match=WHOLE):
        guarded.devices(wants, snapshot, 0)


def test_selector_that_behaves_decides_as_the_built_in_one_it_is() -> None:
    asked = [session(str(n), ask(1, gpu=0.5), at=n) for n in range(5)]
    asked.append(session("gang", *[ask(1, gpu=1)] * 2, at=9))
    decided = []
    for selector in (Concentrated(), GuardedSelector("stranger", Selector())):
        snapshot = cluster(a=box(cpu=4, gpus=2), b=box(cpu=4, gpus=4))
        by = replace(policy(), selector=selector)
        decided.append(where(place(Queue(asked), snapshot, by, context(snapshot))))
    assert decided[0] == decided[1]


# Hooks


@pytest.mark.parametrize(("act", "why"), MISDEEDS)
def test_hook_that_misbehaves_is_refused_wherever_it_is_called(act: Act, why: str) -> None:
    guarded = GuardedHook("stranger", Hook(act))
    for call in (
        lambda: guarded.on_schedule(workload(ask(1))),
        lambda: guarded.before_start({}),
        lambda: guarded.after_end(SessionId("ses-a"), True),
    ):
        with pytest.raises(PluginFault, match=why) as caught:
            call()
        assert (caught.value.kind, caught.value.name) == ("hook", "stranger")


@pytest.mark.parametrize(
    "changed",
    [
        workload(ask(1), owner=BOB),
        replace(workload(ask(1)), group="other"),
        workload(ask(1), ask(1)),
        workload(ask(2)),
        None,
        "workload",
    ],
    ids=["owner", "group", "kernels", "requests", "None", "text"],
)
def test_hook_may_not_change_whose_and_where_it_is(changed: object) -> None:
    with pytest.raises(PluginFault, match="hook 'stranger' must answer a workload"):
        GuardedHook("stranger", Hook(answering(changed))).on_schedule(workload(ask(1)))


def test_hook_may_change_what_is_not_accounted_for() -> None:
    changed = workload(ask(1), priority=10, runs_s=60, not_before=9, preemptible=False, set="trial")
    guarded = GuardedHook("stranger", Hook(answering(changed)))
    assert guarded.on_schedule(workload(ask(1))) is changed


@pytest.mark.parametrize("answer", [None, ["PATH"], {"PATH": 1}, {1: "x"}])
def test_hook_must_answer_an_environment(answer: object) -> None:
    with pytest.raises(PluginFault, match="hook 'stranger' must answer an environment"):
        GuardedHook("stranger", Hook(answering(answer))).before_start({"PATH": "/bin"})


# The leash


def test_leash_counts_each_call_anew_and_leaves_the_tracer_as_it_was() -> None:
    def works() -> tuple[float, ...]:
        total = 0.0
        for _ in range(500):
            total += 1
        return (total,)

    guarded = GuardedSequencer("stranger", Sequencer(works))
    before = sys.gettrace()
    snapshot = cluster(a=box())
    for _ in range(10):
        assert guarded.key(session("s", ask(1)), context(snapshot)) == (500.0,)
    assert sys.gettrace() is before
    with pytest.raises(PluginFault):
        GuardedSequencer("stranger", Sequencer(loops)).key(session("s", ask(1)), context(snapshot))
    assert sys.gettrace() is before


@pytest.mark.parametrize("act", [swallows_at_each_depth, collects, answers_at_last, disguises])
def test_leash_holds_whatever_is_made_of_its_error(act: Act) -> None:
    before = sys.gettrace()
    with pytest.raises(PluginFault, match="ran for more than 2000 lines in one call"):
        GuardedHook("stranger", Hook(act)).before_start({})
    assert sys.gettrace() is before


class Dumb(Exception):
    """Fails at describing itself too."""

    def __repr__(self) -> str:
        raise ValueError("no words")


def test_fault_of_an_error_without_words_names_its_kind() -> None:
    def raises() -> Any:
        raise Dumb

    with pytest.raises(PluginFault, match="raised <Dumb instance"):
        GuardedHook("stranger", Hook(raises)).before_start({})


def test_fault_of_a_huge_answer_is_short() -> None:
    hook = GuardedHook("stranger", Hook(answering({str(n): "x" * 10_000 for n in range(1000)})))
    wrong = GuardedHook("stranger", Hook(answering(["x" * 1_000_000] * 1000)))
    assert len(hook.before_start({})) == 1000
    with pytest.raises(PluginFault, match="must answer an environment") as caught:
        wrong.before_start({})
    assert len(str(caught.value)) < 3000


def test_leash_lets_the_person_at_the_keyboard_interrupt() -> None:
    def interrupted() -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        GuardedHook("stranger", Hook(interrupted)).before_start({})
