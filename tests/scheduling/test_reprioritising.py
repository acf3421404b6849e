"""Sessions that get another priority: whatever they do then, the group decides as if they had had
it from the beginning."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import ANN, ask, cluster, name_of, policy, session, where
from tests.scheduling.strategies import clusters, queues

from muster.core.specs import Level
from muster.scheduling.accounting.usage import scopes
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.passes import queue
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.passes.pass_result import PassResult
from muster.scheduling.workload import SessionWorkload

PRIORITIES = st.sampled_from([20, 50, 80])


def of_priority(waiting: SessionWorkload, priority: int) -> SessionWorkload:
    return replace(waiting, workload=replace(waiting.workload, priority=priority))


def displaced(result: PassResult) -> list[tuple[str, list[str]]]:
    return [(each.session, [its.id for its in each.victims]) for each in result.displaced]


@settings(max_examples=200)
@given(
    snapshot=clusters(),
    coming=queues(),
    later=queues(max_size=4),
    order=st.sampled_from(["strict", "best_effort"]),
    data=st.data(),
)
def test_group_decides_as_one_that_never_knew_another_priority(
    snapshot: Snapshot,
    coming: list[SessionWorkload],
    later: list[SessionWorkload],
    order: str,
    data: st.DataObject,
) -> None:
    followed = policy(queue=order, preemption={"minimum_lease": 0})
    before = snapshot.copy()
    state = GroupState(snapshot, followed)
    for each in coming:
        state.submit(each)
    for placed in state.run_pass(5.0).placed:
        state.start(placed, 5.0)
    for each in later:
        state.submit(replace(each, id=type(each.id)(f"{each.id}-later")))
    waiting = list(state.queue)
    aside = waiting[: data.draw(st.integers(0, 2))]
    for each in aside:
        state.set_aside(each.id)
    holding = [SessionWorkload(id_, 0.0, held.workload) for id_, held in state.placed.items()]
    known = [*waiting, *holding]
    changed = {
        each.id: of_priority(each, data.draw(PRIORITIES))
        for each in known
        if data.draw(st.booleans())
    }
    state.reprioritise(changed.values())
    for each in aside:
        state.readmit(each.id)

    fresh = GroupState(before, followed)
    for id_, held in state.placed.items():
        workload = held.workload
        if id_ in changed:
            assert workload.priority == changed[id_].workload.priority
        fresh.adopt(id_, workload, held.kernels, 5.0, since=5.0)
    for each in waiting:
        fresh.submit(changed.get(each.id, each))
    assert state.accounting.usage.of(scopes(ANN)[0]) == fresh.accounting.usage.of(scopes(ANN)[0])
    decided, expected = state.run_pass(60.0), fresh.run_pass(60.0)
    assert where(decided) == where(expected)
    assert displaced(decided) == displaced(expected)


def test_class_in_which_sessions_come_together_is_in_the_order_of_their_ages() -> None:
    state = GroupState(cluster(), policy())
    for at, name in enumerate("abcd"):
        state.submit(session(name, ask(1), at=at, priority=80 if name in "bd" else 50))
    state.reprioritise([session(name, ask(1), at=at) for name, at in (("d", 3), ("b", 1))])
    (members,) = state.queue.classes
    assert [name_of(each) for each in members] == ["a", "b", "c", "d"]
    assert len({id(each.workload) for each in members}) == 1


def test_class_that_keeps_its_priority_stays_whole() -> None:
    state = GroupState(cluster(), policy())
    both = [session(name, ask(1)) for name in "ab"]
    for each in both:
        state.submit(each)
    state.reprioritise(both)
    (members,) = state.queue.classes
    assert [name_of(each) for each in members] == ["a", "b"]
    assert state.accounting.usage.of((Level.USER, Level.USER.of(ANN))).pending == 2


def test_many_sessions_move_at_the_cost_of_one_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alone would sort the class into which it comes."""
    state = GroupState(cluster(), policy())
    sessions = 1_000
    for at in range(sessions):
        state.submit(session(f"{at:06}", ask(1), at=2 * at, priority=10))
        state.submit(session(f"{at:06}-other", ask(1), at=2 * at + 1))
    sorts: list[int] = []

    def counted(added: Any, *, key: Any) -> list[Any]:
        sorts.append(1)
        return sorted(added, key=key)

    monkeypatch.setattr(queue, "sorted", counted, raising=False)
    moved = [session(f"{at:06}", ask(1), at=2 * at) for at in reversed(range(sessions))]
    state.reprioritise(moved)
    (members,) = state.queue.classes
    assert (len(members), len(sorts)) == (2 * sessions, 1)
