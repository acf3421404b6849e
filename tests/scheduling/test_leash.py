"""The leash of plug-ins: no call goes on for long, whatever a plug-in makes of the error."""

import sys
from typing import Any

import pytest
from tests.scheduling.clusters import ask, box, cluster, context, session
from tests.scheduling.misbehaving import (
    Act,
    Hook,
    Sequencer,
    answering,
    answers_at_last,
    collects,
    disguises,
    loops,
    swallows_at_each_depth,
)

from muster.scheduling.policy.guard import GuardedHook, GuardedSequencer, PluginFault

pytestmark = pytest.mark.usefixtures("short_leash")


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
