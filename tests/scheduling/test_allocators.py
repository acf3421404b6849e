"""The allocator has the last word on each session that finds room."""

from collections.abc import Sequence

import pytest
from tests.scheduling.clusters import (
    ANN,
    BOB,
    ask,
    box,
    cluster,
    contents,
    context,
    group,
    passed,
    policy,
    sentences,
    session,
    where,
)

from muster.core.errors import InvalidSpec, MusterError
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_groups import NoAgents
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.passes.placement import PlacementPass
from muster.scheduling.passes.queue import Queue
from muster.scheduling.policy.group_policy import check_options
from muster.scheduling.policy.plugins import AllocationContext, AllocationResult, registered
from muster.scheduling.workload import KernelPlacement, SessionWorkload

WHY = NoAgents(group="pool")


class Refuses:
    """Allocates nothing to ANN, and notes who asked for how many kernels."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def allocate(
        self,
        session: SessionWorkload,
        kernels: Sequence[KernelPlacement],
        context: AllocationContext,
    ) -> AllocationResult:
        self.asked.append((session.id.removeprefix("ses-"), len(kernels)))
        if session.workload.owner == ANN:
            return AllocationResult(None, (WHY,))
        return AllocationResult(tuple(kernels))


@pytest.fixture
def refuses(monkeypatch: pytest.MonkeyPatch) -> Refuses:
    made = Refuses()
    monkeypatch.setitem(registered, ("allocators", "refuses"), lambda: made)
    return made


def test_allocator_that_is_none_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(MusterError, match="no allocator named 'nobody'; known: repository"):
        policy(allocator="nobody")


def test_default_allocates_what_was_found() -> None:
    snapshot = cluster(a=box(cpu=2))
    result = passed(snapshot, session("one", ask(1)), session("two", ask(1)))
    assert where(result) == {"one": ["a"], "two": ["a"]}
    assert where(passed(cluster(a=box(cpu=2)), session("x", ask(1)), allocator="repository")) == {
        "x": ["a"]
    }


def test_room_of_what_is_refused_goes_to_others(refuses: Refuses) -> None:
    snapshot = cluster(a=box(cpu=2))
    result = passed(
        snapshot,
        session("ann", ask(2), owner=ANN),
        session("bob", ask(1), owner=BOB, at=1),
        session("gang", ask(0.5), ask(0.5), owner=BOB, at=2),
        session("late", ask(1), owner=BOB, at=3),
        allocator="refuses",
    )
    assert where(result)["bob"] == ["a"]
    assert where(result)["gang"] == ["a", "a"]
    assert where(result)["ann"] == [ReasonCode.NO_AGENTS]
    assert where(result)["late"] == [ReasonCode.NO_ROOM]
    assert WHY.sentence() in sentences(result)
    assert refuses.asked == [("ann", 1), ("bob", 1), ("gang", 2)], "who has no room is not asked"


def test_equal_sessions_wait_with_the_one_that_is_refused(refuses: Refuses) -> None:
    many = [session(f"s{n}", ask(1), owner=ANN, at=n) for n in range(5)]
    result = passed(cluster(a=box(cpu=8)), *many, allocator="refuses")
    assert refuses.asked == [("s0", 1)]
    assert set(where(result)) == {f"s{n}" for n in range(5)}
    assert not result.placed


def test_allocator_is_asked_what_would_be_and_nothing_is_taken(refuses: Refuses) -> None:
    snapshot = cluster(a=box(cpu=2))
    before = contents(snapshot)
    mine, other = session("ann", ask(1), owner=ANN), session("bob", ask(1), owner=BOB)
    with Statement(snapshot, trial=True) as statement:
        chosen = policy(allocator="refuses")
        trial = PlacementPass(Queue(), statement, chosen, context(snapshot))
        assert trial.judge(mine) == ((WHY,), ())
        reasons, kernels = trial.judge(other)
        assert (reasons, len(kernels)) == ((), 1)
    assert contents(snapshot) == before


def test_options_are_those_of_the_allocator_that_the_group_names(refuses: Refuses) -> None:
    check_options(group(allocator="refuses", options={"refuses": {}}))
    with pytest.raises(InvalidSpec, match="refuses"):
        check_options(group(options={"refuses": {}}))
