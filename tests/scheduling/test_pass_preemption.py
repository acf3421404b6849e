"""A pass displaces work of lower priority for sessions that lack room, and for no others."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import (
    BOB,
    Box,
    World,
    ask,
    box,
    cluster,
    context,
    leave,
    occupy,
    passed,
    policy,
    reservation,
    running,
    session,
    where,
)
from tests.scheduling.strategies import machines, requests
from tests.scheduling.test_pass_order import quotas

from muster.core.resources import Resources
from muster.core.specs.group import QueuePolicy
from muster.scheduling.passes.placement import place
from muster.scheduling.passes.queue import Queue
from muster.scheduling.workload import RunningSession, SessionWorkload


def preemptive(**fields: object) -> dict[str, Any]:
    return {"preemption": {"minimum_lease": 0} | fields}


def test_session_of_higher_priority_is_told_whose_room_it_gets() -> None:
    snapshot = cluster(a=box(cpu=4))
    low = running("low", "a", kernels=[ask(4)], priority=10)
    occupy(snapshot, low)
    result = passed(snapshot, session("high", ask(2), priority=90), holding=[low], **preemptive())
    assert where(result) == {"high": ["NO_ROOM"]}  # until the room is free
    (found,) = result.displaced
    assert (found.session, [each.id for each in found.victims]) == ("ses-high", ["ses-low"])


def test_nobody_is_displaced_where_the_group_does_not_allow_it() -> None:
    snapshot = cluster(a=box(cpu=4))
    low = running("low", "a", kernels=[ask(4)], priority=10)
    occupy(snapshot, low)
    assert not passed(snapshot, session("high", ask(2), priority=90), holding=[low]).displaced


def test_nobody_is_displaced_for_what_a_quota_or_its_size_forbids() -> None:
    snapshot = cluster(a=box(cpu=4))
    low = running("low", "a", kernels=[ask(4)], priority=10)
    occupy(snapshot, low)
    queue = Queue([session("huge", ask(9), priority=90), session("ann", ask(2), priority=90)])
    limited = context(snapshot, low, quotas=quotas(sessions=0))
    result = place(queue, snapshot, policy(**preemptive()), limited)
    assert where(result) == {"huge": ["QUOTA_IN_USE"], "ann": ["QUOTA_IN_USE"]}
    assert not result.displaced
    result = place(queue, snapshot, policy(**preemptive()), context(snapshot, low))
    assert [each.session for each in result.displaced] == ["ses-ann"]


def test_two_sessions_never_count_on_the_same_victim() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4))
    lows = [running(name, name, kernels=[ask(4)], priority=10) for name in "ab"]
    occupy(snapshot, *lows)
    sessions = [
        session("p", ask(3), priority=90),
        session("q", ask(4), priority=90, at=1),
        session("r", ask(2), priority=90, at=2),
    ]
    result = passed(snapshot, *sessions, holding=lows, **preemptive())
    assert [(each.session, [v.id for v in each.victims]) for each in result.displaced] == [
        ("ses-p", ["ses-a"]),
        ("ses-q", ["ses-b"]),
    ]


def test_two_sessions_never_count_on_the_same_free_room() -> None:
    """2 are free: with them and x the first fits, and then y does not help the second."""
    snapshot = cluster(a=box(cpu=4))
    lows = [running(name, "a", kernels=[ask(1)], priority=10) for name in "xy"]
    occupy(snapshot, *lows)
    sessions = [
        session("p", ask(3), priority=90),
        session("q", ask(1.5), ask(1.5), priority=90, at=1),
    ]
    result = passed(snapshot, *sessions, holding=lows, queue="best_effort", **preemptive())
    assert [each.session for each in result.displaced] == ["ses-p"]


def test_room_that_a_victim_leaves_over_is_not_made_again() -> None:
    """p displaces x, which holds more than p needs; the rest will do for q."""
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4))
    lows = [running(name, name, kernels=[ask(4)], priority=10) for name in "ab"]
    occupy(snapshot, *lows)
    sessions = [session("p", ask(2), priority=90), session("q", ask(1), priority=90, at=1)]
    result = passed(snapshot, *sessions, holding=lows, **preemptive())
    assert [each.session for each in result.displaced] == ["ses-p"]


def test_nobody_is_displaced_for_room_that_the_head_takes() -> None:
    """The head waits for x to end; y would make room for q, had the head not been promised it."""
    snapshot = cluster(a=box(cpu=4))
    high = running("x", "a", kernels=[ask(2)], priority=95, since=0, runs_s=100)
    low = running("y", "a", kernels=[ask(1)], priority=10, since=0, runs_s=100)
    occupy(snapshot, high, low)
    sessions = [
        session("head", ask(4), priority=90),
        session("q", ask(2), priority=90, at=1),
    ]
    result = passed(snapshot, *sessions, holding=[high, low], **preemptive())
    assert where(result) == {"head": ["NO_ROOM"], "q": ["NO_ROOM"]}
    assert not result.displaced


def leaving(each: RunningSession, ends_at: float) -> RunningSession:
    """As control says of one that was told to stop."""
    return replace(each, workload=replace(each.workload, preemptible=False), ends_at=ends_at)


@pytest.mark.parametrize("queue", [QueuePolicy.BEST_EFFORT, QueuePolicy.BACKFILL])
def test_room_that_is_made_for_several_goes_to_nobody_else(queue: QueuePolicy) -> None:
    """The first victim has left, and the next pass comes before the others have."""
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4))
    lows = [running(f"low{n}", "aabb"[n], kernels=[ask(2)], priority=10) for n in range(4)]
    occupy(snapshot, *lows)
    waiting = Queue([session("p", ask(4), priority=90), session("q", ask(4), priority=80, at=1)])
    by = policy(queue=queue, **preemptive())
    first = place(waiting, snapshot, by, context(snapshot, *lows))
    assert [each.session for each in first.displaced] == ["ses-p", "ses-q"]
    displacing = {each.session: {v.id for v in each.victims} for each in first.displaced}
    gone = first.displaced[1].victims[0]
    leave(snapshot, gone)
    waiting.rooms.clear()
    waiting.add(SessionWorkload(gone.id, -1.0, gone.workload))
    rest = [leaving(each, 110) for each in lows if each is not gone]
    now = replace(context(snapshot, *rest, now=101), displacing=displacing)
    assert where(place(waiting, snapshot, by, now))[gone.id.removeprefix("ses-")] == [
        "BEHIND_RESERVATION"
    ]


def test_room_that_is_made_behind_the_head_goes_to_nobody_else() -> None:
    """The head may displace nobody and waits elsewhere."""
    snapshot = cluster(a=box(cpu=4), b=box(cpu=2))
    one, two = [running(name, "a", kernels=[ask(2)], priority=10) for name in ("one", "two")]
    other = running("other", "b", kernels=[ask(2)], priority=95)
    occupy(snapshot, one, two, other)
    sessions = [
        session("head", ask(2), priority=95, owner=BOB, agents=["b"]),
        session("p", ask(4), priority=80, at=1),
        session("late", ask(2), priority=5, at=2, owner=BOB, agents=["a"]),
    ]
    waiting, by = Queue(sessions), policy(**preemptive(scope="user"))
    first = place(waiting, snapshot, by, context(snapshot, one, two, other))
    assert [each.session for each in first.displaced] == ["ses-p"]
    leave(snapshot, one)
    waiting.rooms.clear()
    now = context(snapshot, leaving(two, 130), other, now=101)
    result = place(waiting, snapshot, by, replace(now, displacing={sessions[1].id: {two.id}}))
    assert where(result) == {"head": ["NO_ROOM"], "p": ["NO_ROOM"], "late": ["BEHIND_RESERVATION"]}


@pytest.mark.parametrize(("kernels", "victims"), [(3, 2), (2, 1)])
def test_what_is_kept_for_the_head_counts_as_free_for_it(kernels: int, victims: int) -> None:
    """Known ends give it a reservation of the free agent, which is no reason to displace more."""
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4), c=box(cpu=4))
    lows = [running(name, name, kernels=[ask(4)], priority=10, runs_s=600) for name in "ab"]
    occupy(snapshot, *lows)
    head = session("head", *[ask(4)] * kernels, priority=90)
    result = passed(snapshot, head, holding=lows, now=10, **preemptive())
    assert reservation(result) is not None
    (found,) = result.displaced
    assert len(found.victims) == victims


@settings(max_examples=60, deadline=None)
@given(
    boxes=st.lists(machines, min_size=1, max_size=3),
    lows=st.lists(st.tuples(requests, st.integers(0, 60)), max_size=8),
    highs=st.lists(
        st.tuples(st.lists(requests, min_size=1, max_size=3), st.integers(30, 90)), max_size=4
    ),
    queue=st.sampled_from([QueuePolicy.BEST_EFFORT, QueuePolicy.BACKFILL]),
)
def test_all_for_whom_others_are_displaced_fit_together_once_these_have_left(
    boxes: list[Box],
    lows: list[tuple[Resources, int]],
    highs: list[tuple[list[Resources], int]],
    queue: QueuePolicy,
) -> None:
    world = World(
        cluster(**dict(zip("abc", boxes, strict=False))), policy(queue="best_effort"), longest_s=99
    )
    for n, (request, priority) in enumerate(lows):
        world.arrive(session(f"low{n}", request, priority=priority))
    world.pass_()
    for id_ in [each.id for each in world.state.queue]:
        world.state.withdraw(id_)
    for n, (kernels, priority) in enumerate(highs):
        world.arrive(session(f"high{n}", *kernels, at=n, priority=priority))
    world.now = 5
    world.state.use(policy(queue=queue, **preemptive()))
    result = world.pass_()
    for found in result.displaced:
        for victim in found.victims:
            assert victim.workload.priority < found.priority
            assert victim.id in world.state.placed
            world.leave(victim.id)
    taken = world.state.snapshot.copy()
    for found in result.displaced:
        its = world.state.queue.class_of(found.session).workload
        for request, kernel in zip(its.kernels, found.kernels, strict=True):
            taken.take(kernel.agent_id, request, kernel.shares)  # raises where it does not fit
