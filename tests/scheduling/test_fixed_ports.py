"""Kernels that listen on a fixed port: no two of one port are on one agent, whoever owns them."""

import pytest
from tests.scheduling.clusters import (
    BOB,
    agent,
    ask,
    box,
    cluster,
    passed,
    policy,
    sentences,
    session,
    where,
    workload,
)

from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.passes.placement import never_fits
from muster.scheduling.workload import users_of


def taken(snapshot: Snapshot, *names: str) -> Snapshot:
    for name in names:
        snapshot.set_joined(agent(name), users_of(9777), 1)
    return snapshot


@pytest.mark.parametrize("selector", ["concentrated", "dispersed", "round_robin"])
def test_no_two_are_on_one_agent_whoever_owns_them(selector: str) -> None:
    queue = [
        session("1", ask(), at=1, port=9777),
        session("2", ask(), at=2, owner=BOB, port=9777),
        session("3", ask(), at=3, set="chat.1", port=9777),
        session("4", ask(), at=4, port=9777),
        session("5", ask(), at=5, port=80),
        session("6", ask(), at=6),
    ]
    result = passed(cluster(a=box(), b=box(), c=box()), *queue, selector=selector)
    decided = where(result)
    assert sorted(decided["1"] + decided["2"] + decided["3"]) == ["a", "b", "c"]
    assert decided["4"] == ["PORT_TAKEN"]
    assert len(result.placed) == 5
    assert sentences(result) == ["its port 9777 is taken on all 3 agents of group pool"]


def test_agent_that_lacks_room_is_told_apart_from_those_where_the_port_is_taken() -> None:
    snapshot = taken(cluster(a=box(4), b=box(1), c=box(4, status="draining")), "a")
    assert sentences(passed(snapshot, session("s", ask(2), port=9777))) == [
        "none of the 2 of 3 agents in group pool that meet port 9777 free has 2 cpu free "
        "now; no new work goes to 1 of them (1 draining)"
    ]
    taken(snapshot, "b")
    assert sentences(passed(snapshot, session("s", ask(2), port=9777))) == [
        "its port 9777 is taken on all 2 agents of group pool that it may use now"
    ]


def test_port_that_is_taken_everywhere_is_no_reason_to_refuse_a_session_for_good() -> None:
    snapshot = taken(cluster(a=box(4)), "a")
    assert never_fits(workload(ask(4), port=9777), snapshot, policy()) is None
    assert never_fits(workload(ask(8), port=9777), snapshot, policy()) is not None


def test_no_room_is_kept_for_a_session_whose_port_is_taken() -> None:
    snapshot = taken(cluster(a=box(4)), "a")
    snapshot.take(agent("a"), ask(2))
    waits, small = session("waits", ask(4), at=1, port=9777), session("small", ask(1), at=2)
    decided = where(passed(snapshot, waits, small, now=1000))
    assert decided == {"small": ["a"], "waits": ["PORT_TAKEN"]}
    decided = where(passed(snapshot, waits, session("2", ask(1), at=3), queue="strict"))
    assert decided == {"2": ["a"], "waits": ["PORT_TAKEN"]}


def test_port_is_free_again_with_the_end_of_the_session() -> None:
    state = GroupState(cluster(a=box(4)), policy())
    first, second = (session(name, ask(), port=9777) for name in "12")
    for each in (first, second):
        state.submit(each)
    (placed,) = state.run_pass(1).placed
    state.start(placed, 1)
    assert not state.run_pass(2).placed
    state.end(first.id, 3)
    assert [each.session for each in state.run_pass(3).placed] == [second]
