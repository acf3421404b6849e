"""Plug-ins that raise, loop or answer nonsense are refused with their name; nothing is changed."""

from dataclasses import replace

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
from tests.scheduling.misbehaving import (
    MISDEEDS,
    Act,
    Hook,
    Selector,
    Sequencer,
    Validator,
    answering,
)

from muster.core.ids import SessionId
from muster.core.reasons.of_sessions import RoomTakenMeanwhile
from muster.core.resources import DeviceShare
from muster.scheduling.explaining.explain import explain
from muster.scheduling.passes.placement import place
from muster.scheduling.passes.queue import Queue
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.guard import (
    GuardedHook,
    GuardedSelector,
    GuardedSequencer,
    GuardedValidator,
    PluginFault,
)
from muster.scheduling.policy.plugins import PassContext
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import SessionWorkload

pytestmark = pytest.mark.usefixtures("short_leash")


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
    forbids = GuardedValidator("stranger", Validator(answering([RoomTakenMeanwhile()])))
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
