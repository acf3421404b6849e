"""Sessions that may overtake one that lacks room: strict, best effort, backfill."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import (
    ANN,
    Box,
    World,
    agent,
    ask,
    box,
    cluster,
    context,
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
from tests.scheduling.strategies import machines, requests
from tests.scheduling.test_pass_order import order

from muster.core.resources import Resources
from muster.scheduling.accounting.usage import Usage, scopes
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.explaining.explain import explain
from muster.scheduling.making_room.freed_room import fits
from muster.scheduling.making_room.reservation import Reservation
from muster.scheduling.passes.placement import place
from muster.scheduling.passes.queue import Kept, Queue
from muster.scheduling.workload import KernelPlacement, RunningSession, SessionWorkload

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
        "would delay the session ahead of it in group pool, which is to start in 1m40s"
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
