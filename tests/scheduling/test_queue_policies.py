"""What may overtake a session that lacks room, and in which order all are tried."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import (
    ANN,
    BOB,
    Box,
    World,
    agent,
    ask,
    box,
    cluster,
    context,
    leave,
    name_of,
    occupy,
    passed,
    policy,
    reservation,
    running,
    sentences,
    session,
    where,
)
from tests.scheduling.strategies import requests

from muster.core.owner import Owner
from muster.core.resources import Resources
from muster.core.specs import QuotaSpec
from muster.core.specs.group import QueuePolicy
from muster.scheduling.accounting.usage import Quotas, Usage, scopes
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.explaining.explain import explain
from muster.scheduling.making_room.departures import fits
from muster.scheduling.making_room.reservation import Reservation
from muster.scheduling.passes.pass_result import PassResult
from muster.scheduling.passes.placement import place
from muster.scheduling.passes.queue import Kept, Queue
from muster.scheduling.workload import KernelPlacement, RunningSession, SessionWorkload

CAT = Owner("default", "research", "cat")


def order(result: PassResult) -> list[str]:
    return [name_of(placed) for placed, _ in result.placed]


# The order


def test_priority_goes_before_age_and_age_before_identifier() -> None:
    sessions = [
        session("d", ask(1), at=2),
        session("c", ask(1), at=1),
        session("b", ask(1), at=1),
        session("a", ask(1), at=9, priority=60),
    ]
    assert order(passed(cluster(x=box(cpu=4)), *sessions)) == ["a", "b", "c", "d"]


def test_classes_are_interleaved_by_the_age_of_each_session() -> None:
    sessions = [session(str(at), ask(1 + at % 2), at=at) for at in range(6)]
    assert order(passed(cluster(x=box(cpu=16)), *sessions)) == ["0", "1", "2", "3", "4", "5"]


def test_lifo_starts_the_youngest_first_inside_a_band() -> None:
    sessions = [
        session("old", ask(1), at=1),
        session("urgent", ask(1), at=2, priority=60),
        session("middle", ask(1), at=3),
        session("other", ask(2), at=4),
        session("young", ask(1), at=5),
    ]
    result = passed(cluster(x=box(cpu=5)), *sessions, sequencer="lifo")
    assert where(result) == {
        "urgent": ["x"],
        "young": ["x"],
        "other": ["x"],
        "middle": ["x"],
        "old": ["NO_ROOM"],
    }


def test_lifo_starts_sessions_of_one_age_by_their_ids() -> None:
    sessions = [session(name, ask(1), at=at) for name, at in [("a", 1), ("b", 1), ("c", 0)]]
    assert order(passed(cluster(x=box(cpu=4)), *sessions, sequencer="lifo")) == ["a", "b", "c"]


def test_drf_lets_owners_take_turns_as_the_pass_places() -> None:
    sessions = [session(f"ann{n}", ask(1), at=n) for n in range(4)]
    sessions += [session(f"bob{n}", ask(1), at=9, owner=BOB) for n in range(2)]
    sessions += [session("cat0", ask(2), at=9.5, owner=CAT)]
    result = passed(cluster(x=box(cpu=8)), *sessions, sequencer="drf")
    assert order(result) == ["ann0", "bob0", "cat0", "ann1", "bob1", "ann2", "ann3"]


def test_drf_counts_what_owners_hold_already() -> None:
    usage = Usage()
    usage.placed(ANN, {"cpu": 3000})
    snapshot = cluster(x=box(cpu=8))
    queue = Queue(
        [session(f"ann{n}", ask(1), at=0) for n in range(2)]
        + [session(f"bob{n}", ask(1), at=9, owner=BOB) for n in range(5)]
    )
    result = place(queue, snapshot, policy(sequencer="drf"), context(snapshot, usage=usage))
    assert order(result) == ["bob0", "bob1", "bob2", "ann0", "bob3", "ann1", "bob4"]
    assert usage.of(scopes(ANN)[0]).amounts == {"cpu": 3000}


def test_priority_goes_before_fairness() -> None:
    sessions = [session(f"ann{n}", ask(1), priority=60) for n in range(2)]
    sessions += [session("bob", ask(1), owner=BOB)]
    result = passed(cluster(x=box(cpu=4)), *sessions, sequencer="drf")
    assert order(result) == ["ann0", "ann1", "bob"]


@settings(max_examples=60, deadline=None)
@given(
    shapes=st.lists(
        st.tuples(
            st.sampled_from([ANN, BOB, CAT]),
            st.integers(1, 3),
            st.sampled_from([50, 60]),
            st.integers(0, 3),
        ),
        max_size=14,
    ),
    sequencer=st.sampled_from(["fifo", "lifo", "drf", "fair_share"]),
)
def test_pass_places_in_the_order_of_one_that_looks_at_all_after_each(
    shapes: list[tuple[Owner, int, int, int]], sequencer: str
) -> None:
    """Against the plain way: place the first of all that wait, count it, sort all anew."""
    sessions = [
        session(f"{n:02}", ask(cpu), owner=owner, priority=priority, at=at)
        for n, (owner, cpu, priority, at) in enumerate(shapes)
    ]
    snapshot = cluster(x=box(cpu=100))
    by, usage = policy(sequencer=sequencer), Usage()
    expected, left = [], list(sessions)
    now = context(snapshot, usage=usage)
    while left:
        left.sort(
            key=lambda each: (
                -each.workload.priority,
                *by.sequencer.key(each, now),
                each.submitted_at,
                each.id,
            )
        )
        each = left.pop(0)
        usage.placed(each.workload.owner, each.workload.total)
        expected.append(name_of(each))
    assert order(passed(snapshot, *sessions, sequencer=sequencer)) == expected


# Quotas within a pass


def quotas(**fields: object) -> Quotas:
    spec = {"level": "user", "name": "default/research/ann"} | fields
    return Quotas([QuotaSpec.model_validate(spec)])


def test_quota_counts_what_the_pass_placed_before() -> None:
    snapshot = cluster(x=box(cpu=16))
    queue = Queue([session(str(n), ask(2), at=n) for n in range(4)])
    queue.add(session("other", ask(1), at=5))
    queue.add(session("bob", ask(2), at=6, owner=BOB))
    usage = Usage()
    usage.placed(ANN, {"cpu": 1000})
    limited = context(snapshot, quotas=quotas(limits={"cpu": 6}), usage=usage)
    result = place(queue, snapshot, policy(), limited)
    assert where(result) == {
        "0": ["x"],
        "1": ["x"],
        "other": ["x"],
        "bob": ["x"],
        "2": ["QUOTA_IN_USE"],
        "3": ["QUOTA_IN_USE"],
    }
    assert sentences(result)[0].startswith("cpu: used 5 + requested 2 > limit 6, over by 1")


def test_limit_on_sessions_counts_gangs_once_each() -> None:
    snapshot = cluster(x=box(cpu=16))
    queue = Queue(session(str(n), ask(1), ask(1), at=n) for n in range(3))
    result = place(queue, snapshot, policy(), context(snapshot, quotas=quotas(sessions=2)))
    assert where(result) == {"0": ["x", "x"], "1": ["x", "x"], "2": ["QUOTA_IN_USE"]}


@pytest.mark.parametrize("queue", QueuePolicy)
def test_session_that_a_quota_stops_holds_up_nobody(queue: QueuePolicy) -> None:
    snapshot = cluster(x=box(cpu=4))
    sessions = Queue([session("ann", ask(4), at=1), session("bob", ask(4), at=2, owner=BOB)])
    limited = context(snapshot, quotas=quotas(sessions=0))
    result = place(sessions, snapshot, policy(queue=queue), limited)
    assert where(result) == {"bob": ["x"], "ann": ["QUOTA_IN_USE"]}


@settings(max_examples=60, deadline=None)
@given(
    limit=st.integers(0, 12),
    most=st.integers(0, 8),
    asked=st.lists(st.tuples(st.sampled_from([ANN, BOB]), st.integers(1, 4)), max_size=12),
    sequencer=st.sampled_from(["fifo", "drf"]),
)
def test_no_pass_places_more_than_quotas_allow(
    limit: int, most: int, asked: list[tuple[Owner, int]], sequencer: str
) -> None:
    snapshot = cluster(x=box(cpu=100))
    sessions = [session(f"{n:02}", ask(cpu), owner=owner) for n, (owner, cpu) in enumerate(asked)]
    limited = context(snapshot, quotas=quotas(limits={"cpu": limit}, sessions=most))
    result = place(Queue(sessions), snapshot, policy(sequencer=sequencer), limited)
    anns = [
        each.workload.kernels[0].cpu_milli
        for each, _ in result.placed
        if each.workload.owner == ANN
    ]
    assert sum(anns) <= limit * 1000
    assert len(anns) <= most
    for members in result.refused:
        assert members.workload.owner == ANN
        cpu = members.workload.kernels[0].cpu_milli
        assert sum(anns) + cpu > limit * 1000 or len(anns) == most


# Strict


def blocked(*held: RunningSession) -> tuple[Snapshot, list[SessionWorkload]]:
    """Two agents with 1 and 2 cpu free, a head that wants 4, and others behind it."""
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4))
    occupy(snapshot, *held)
    return snapshot, [
        session("first", ask(1), at=0),
        session("head", ask(4), at=1),
        session("small", ask(1), at=2),
        session("urgent", ask(1), at=3, priority=90),
    ]


FIRST = running("x", "a", kernels=[ask(3)], runs_s=100)
SECOND = running("y", "b", kernels=[ask(2)], runs_s=200)


def test_strict_starts_nothing_behind_what_lacks_room() -> None:
    snapshot, sessions = blocked(FIRST, SECOND)
    result = passed(snapshot, *sessions, holding=(FIRST, SECOND), queue="strict")
    assert where(result) == {
        "urgent": ["a"],
        "first": ["b"],
        "head": ["NO_ROOM"],
        "small": ["STRICT_ORDER"],
    }
    assert reservation(result) is None


def test_strict_stops_inside_a_class_too() -> None:
    snapshot = cluster(a=box(cpu=4))
    sessions = [session(str(n), ask(3), at=n) for n in range(2)] + [session("z", ask(1), at=5)]
    result = passed(snapshot, *sessions, queue="strict")
    assert where(result) == {"0": ["a"], "1": ["NO_ROOM"], "z": ["STRICT_ORDER"]}


def test_strict_is_not_held_up_by_what_could_never_start() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=9, status="LOST"))
    sessions = [
        session("huge", ask(99), at=0),
        session("absent", ask(9), at=1),
        session("forbidden", ask(4), at=2, not_before=1000),
        session("small", ask(1), at=3),
    ]
    assert where(passed(snapshot, *sessions, queue="strict")) == {
        "small": ["a"],
        "huge": ["NEVER_FITS"],
        "absent": ["NEEDS_ABSENT_AGENTS"],
        "forbidden": ["BEFORE_START_TIME"],
    }


@settings(max_examples=80, deadline=None)
@given(
    boxes=st.lists(st.builds(box, cpu=st.integers(1, 6)), min_size=1, max_size=3),
    asked=st.lists(st.tuples(st.integers(1, 4), st.sampled_from([50, 60])), max_size=10),
)
def test_priority_is_never_inverted_under_strict(
    boxes: list[Box], asked: list[tuple[int, int]]
) -> None:
    snapshot = cluster(**dict(zip("abc", boxes, strict=False)))
    largest = max(each.capacity.cpu_milli for each in boxes)
    sessions = [
        session(f"{n:02}", ask(cpu), at=n, priority=priority)
        for n, (cpu, priority) in enumerate(asked)
        if cpu * 1000 <= largest
    ]
    sessions.sort(key=lambda each: (-each.workload.priority, each.submitted_at))
    started = order(passed(snapshot, *sessions, queue="strict"))
    assert started == [name_of(each) for each in sessions[: len(started)]]


# Best effort


def test_best_effort_starts_whatever_fits_however_long_the_head_has_waited() -> None:
    snapshot, sessions = blocked(FIRST, SECOND)
    result = passed(snapshot, *sessions, holding=(FIRST, SECOND), now=1e6, queue="best_effort")
    assert where(result) == {"urgent": ["a"], "first": ["b"], "small": ["b"], "head": ["NO_ROOM"]}
    assert reservation(result) is None


# Backfill


def test_backfill_starts_what_has_left_when_the_head_starts() -> None:
    """The head wants all of a at 110, when x has ended; what ends by then may stand there."""
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4))
    held = (
        running("x", "a", kernels=[ask(3)], since=10, runs_s=100),
        running("y", "b", kernels=[ask(4)], since=10, runs_s=200),
    )
    occupy(snapshot, *held)
    sessions = [
        session("head", ask(4), at=1),
        session("long", ask(1), at=2, runs_s=101),
        session("endless", ask(1), at=3),
        session("short", ask(1), at=4, runs_s=100),
    ]
    result = passed(snapshot, *sessions, holding=held)
    assert where(result) == {
        "short": ["a"],
        "head": ["NO_ROOM"],
        "long": ["BEHIND_RESERVATION"],
        "endless": ["BEHIND_RESERVATION"],
    }
    found = reservation(result)
    assert found is not None
    assert (found.expected_at, found.waits_for) == (110, ("ses-x",))
    assert sentences(result)[1] == (
        "would delay the session ahead of it in group pool, which is to start in 100 s"
    )


def test_backfill_starts_what_stands_beside_the_head() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4))
    held = running("x", "a", kernels=[ask(3)], runs_s=100), running("y", "b", kernels=[ask(3)])
    occupy(snapshot, *held)
    sessions = [session("head", ask(3), at=1)]
    sessions += [session(str(n), ask(1), at=2 + n) for n in range(3)]
    assert where(passed(snapshot, *sessions, holding=held)) == {
        "0": ["a"],  # 3 of a's 4 come back for the head
        "1": ["b"],
        "head": ["NO_ROOM"],
        "2": ["NO_ROOM"],
    }


def test_backfill_keeps_devices_by_name() -> None:
    snapshot = cluster(a=box(cpu=16, gpus=4))
    held = running("x", "a:0,1", kernels=[ask(1, gpu=2)], runs_s=100)
    occupy(snapshot, held)
    sessions = [session("head", ask(1, gpu=3), at=1)]
    sessions += [session(str(n), ask(1, gpu=1), at=2 + n) for n in range(2)]
    assert where(passed(snapshot, *sessions, holding=[held])) == {
        "0": ["a:3"],  # the head starts on 0, 1 and 2
        "head": ["NO_ROOM"],
        "1": ["BEHIND_RESERVATION"],
    }


def test_what_is_lent_leaves_the_rest_of_the_agent_to_others() -> None:
    """2 of b's 3 free are kept; a short session stands on them, and the third is for anybody."""
    snapshot = cluster(b=box(cpu=4))
    held = running("x", "b", kernels=[ask(1)], since=10, runs_s=100)
    occupy(snapshot, held)
    sessions = [
        session("head", ask(2), ask(1.5), at=1),
        session("short", ask(2.5), at=2, runs_s=50),
        session("endless", ask(0.5), at=3),
        session("more", ask(0.5), at=4),
    ]
    result = passed(snapshot, *sessions, holding=[held])
    assert where(result) == {
        "short": ["b"],
        "endless": ["b"],
        "head": ["GANG_NO_ROOM"],
        "more": ["NO_ROOM"],
    }


def test_several_passes_respect_one_reservation() -> None:
    """Nothing that enters in between is placed where it would delay the head."""
    world = World(cluster(a=box(cpu=4), b=box(cpu=4)), policy(), {"x": 100, "y": 200}, 1000)
    world.arrive(
        session("x", ask(3), at=-3, runs_s=100),
        session("y", ask(3), at=-2, runs_s=200),
        session("head", ask(4), at=-1),
    )
    for now in range(0, 100, 5):
        world.now = now
        world.end()
        world.arrive(session(f"s{now:02}", ask(1), at=now))
        world.pass_()
    assert set(world.started_at) == {"x", "y", "s00"}
    world.now = 100
    world.end()
    world.pass_()
    assert world.started_at["head"] == 100


def test_nothing_is_kept_while_ends_are_unknown_and_the_head_is_young() -> None:
    held = running("x", "a", kernels=[ask(3)]), running("y", "b", kernels=[ask(2)])
    snapshot, sessions = blocked(*held)
    result = passed(snapshot, *sessions, holding=held, now=300)
    assert where(result)["small"] == ["b"]
    assert reservation(result) is None


def test_only_the_first_that_lacks_room_gets_a_reservation() -> None:
    snapshot, sessions = blocked(FIRST, SECOND)
    sessions.append(session("second", ask(3), at=1.5))
    result = passed(snapshot, *sessions, holding=(FIRST, SECOND))
    assert list(result.rooms) == ["ses-head"]


def test_reservation_passes_to_the_next_when_the_head_is_cancelled() -> None:
    snapshot, sessions = blocked(FIRST, SECOND)
    queue = Queue([sessions[1], session("second", ask(3), at=1.5)])
    place(queue, snapshot, policy(), context(snapshot, FIRST, SECOND))
    assert list(queue.rooms) == ["ses-head"]
    queue.remove(sessions[1].id)
    place(queue, snapshot, policy(), context(snapshot, FIRST, SECOND))
    assert list(queue.rooms) == ["ses-second"]


def test_gang_of_unlike_kernels_takes_the_room_that_was_kept_for_it() -> None:
    """Placed greedily it would miss its only room: 5 = 3 + 2 and 8 = 4 + 2 + 2."""
    snapshot = cluster(a=box(cpu=5), b=box(cpu=8), c=box(cpu=13))
    snapshot.take(agent("c"), ask(13))
    gang = session("gang", *[ask(cpu) for cpu in (3, 2, 4, 2, 2)])
    assert where(passed(snapshot, gang)) == {"gang": ["GANG_NO_ROOM"]}

    queue, seen = Queue([gang]), context(snapshot)
    kernels = tuple(KernelPlacement(agent(name)) for name in "aabbb")
    kept = Reservation(gang.id, gang.workload, kernels, (), 20, ())
    room = Kept(gang.id, kept, snapshot.version, snapshot.capacity_version, False, 9)
    queue.rooms = {gang.id: room}
    assert explain(gang, queue, snapshot, policy(), seen).placement == kernels
    assert where(place(queue, snapshot, policy(), seen)) == {"gang": list("aabbb")}


machines = st.builds(box, cpu=st.integers(1, 6), gpus=st.integers(0, 2), licence=st.integers(0, 1))


@settings(max_examples=80, deadline=None)
@given(
    boxes=st.lists(machines, min_size=1, max_size=3),
    asked=st.lists(
        st.tuples(st.lists(requests, min_size=1, max_size=3), st.integers(1, 6), st.integers(0, 3)),
        min_size=1,
        max_size=12,
    ),
)
def test_no_head_is_delayed_by_what_overtakes_it(
    boxes: list[Box], asked: list[tuple[list[Resources], int, int]]
) -> None:
    """Everybody says how long they run and keeps it: whoever heads the queue starts no later than
    it was first told, whatever arrives behind."""
    world = World(cluster(**dict(zip("abc", boxes, strict=False))), policy(starvation_after=1000))
    empty = world.state.snapshot.emptied()
    arriving: dict[int, list[SessionWorkload]] = {}
    at = 0
    for number, (kernels, runs_s, later_s) in enumerate(asked):
        at += later_s
        each = session(f"{number:02}", *kernels, at=at, runs_s=runs_s)
        if fits(empty, world.state.policy.selector, each.workload) is not None:
            world.runs_s[name_of(each)] = runs_s
            arriving.setdefault(at, []).append(each)
    promised: dict[str, float] = {}
    for now in range(at + 6 * len(asked) + 1):
        world.now = now
        world.end()
        world.arrive(*arriving.get(now, ()))
        result = world.pass_()
        assert world.state.snapshot.columns.free.min() >= 0
        assert not result.rooms or reservation(result) is not None
        for kept in filter(None, [reservation(result)]):
            assert kept.expected_at is not None
            promised.setdefault(kept.session, kept.expected_at)
    assert not world.state.waiting
    started_at = {id_: world.started_at[id_.removeprefix("ses-")] for id_ in promised}
    late = {id_: at for id_, at in started_at.items() if at > promised[id_]}
    assert not late, promised


# Preemption


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
            assert victim.id in world.state.places
            world.leave(victim.id)
    taken = world.state.snapshot.copy()
    for found in result.displaced:
        its = world.state.queue.class_of(found.session).workload
        for request, kernel in zip(its.kernels, found.kernels, strict=True):
            taken.take(kernel.agent_id, request, kernel.shares)  # raises where it does not fit


# Plain facts of a pass


def test_pass_changes_neither_queue_nor_usage() -> None:
    snapshot, usage = cluster(a=box(cpu=4)), Usage()
    queue = Queue([session("a", ask(1)), session("b", ask(9))])
    place(queue, snapshot, policy(), context(snapshot, usage=usage))
    assert len(queue) == 2
    assert usage.of(scopes(ANN)[0]).sessions == 0


def test_what_is_held_for_the_head_is_not_held_after_the_pass() -> None:
    snapshot, sessions = blocked(FIRST, SECOND)
    before = snapshot.columns.free.tolist()
    result = passed(snapshot, sessions[1], holding=(FIRST, SECOND))
    found = reservation(result)
    assert found is not None
    assert found.reserved
    assert snapshot.columns.free.tolist() == before
