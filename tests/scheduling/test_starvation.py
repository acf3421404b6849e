"""No session starves, however much younger work keeps arriving."""

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import (
    Box,
    World,
    agent,
    ask,
    box,
    cluster,
    passed,
    policy,
    reservation,
    sentences,
    session,
    where,
)
from tests.scheduling.strategies import requests

from muster.core.resources import Resources
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.making_room.freed_room import fits
from muster.scheduling.workload import SessionWorkload

STARVATION_S = 6
LONGEST_S = 4
machines = st.builds(box, cpu=st.integers(1, 6), gpus=st.integers(0, 2), licence=st.integers(0, 1))


def placed(
    snapshot: Snapshot, *queue: SessionWorkload, now: float = 10, starvation_after: float = 300
) -> dict[str, list[str]]:
    return where(passed(snapshot, *queue, now=now, starvation_after=starvation_after))


def test_nothing_behind_a_starving_session_takes_what_it_needs() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4))
    snapshot.take(agent("a"), ask(1))
    queue = [
        session("first", ask(1), at=0),
        session("gang", ask(4), ask(4), at=1),
        session("later", ask(1), at=2),
        session("urgent", ask(1), at=3, priority=90),
        session("huge", ask(99), at=4),
    ]
    assert placed(snapshot, *queue, now=20, starvation_after=19) == {
        "urgent": ["a"],
        "first": ["a"],
        "gang": ["GANG_NO_ROOM"],
        "later": ["BEHIND_STARVING"],
        "huge": ["NEVER_FITS"],  # waiting would not help
    }


def test_what_stands_beside_the_starving_session_starts() -> None:
    """Room is kept on one agent; the others go on."""
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4))
    for name in "ab":
        snapshot.take(agent(name), ask(2))
    queue = [session("head", ask(3), at=0)]
    queue += [session(str(n), ask(1), at=1 + n) for n in range(4)]
    assert placed(snapshot, *queue, now=400) == {
        "0": ["b"],
        "1": ["b"],
        "head": ["NO_ROOM"],
        "2": ["BEHIND_STARVING"],
        "3": ["BEHIND_STARVING"],
    }


def test_short_work_does_not_enter_what_is_kept_for_a_starving_session() -> None:
    """Its start is not known, so nothing is known to have left by then."""
    snapshot = cluster(a=box(cpu=4))
    snapshot.take(agent("a"), ask(2))
    queue = [session("head", ask(4), at=0), session("short", ask(1), at=1, runs_s=1)]
    assert placed(snapshot, *queue, now=400)["short"] == ["BEHIND_STARVING"]


def test_reason_says_how_long_the_other_has_waited() -> None:
    snapshot = cluster(a=box(cpu=4))
    snapshot.take(agent("a"), ask(1))
    result = passed(snapshot, session("old", ask(4)), session("new", ask(1), at=990), now=1000.7)
    assert sentences(result)[1] == (
        "group pool keeps its room for a session that has waited longer than 300 s"
    )


def test_sessions_overtake_until_the_first_one_starves() -> None:
    queue = [session("gang", ask(4), at=0), session("later", ask(1), at=2)]

    def at(now: float) -> dict[str, list[str]]:
        snapshot = cluster(a=box(cpu=4))
        snapshot.take(agent("a"), ask(1))
        return placed(snapshot, *queue, now=now)

    assert at(299) == {"gang": ["NO_ROOM"], "later": ["a"]}
    assert at(300) == {"gang": ["NO_ROOM"], "later": ["BEHIND_STARVING"]}


@pytest.mark.parametrize(
    "hopeless",
    [session("x", ask(5)), session("x", *[ask(4)] * 2), session("x", ask(5), ask(1))],
    ids=["too large", "gang too large", "needs a silent agent"],
)
def test_session_that_cannot_fit_blocks_nobody_however_long_it_waits(
    hopeless: SessionWorkload,
) -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=9, status="LOST"))
    result = placed(snapshot, hopeless, session("later", ask(1), at=5), now=1e6)
    assert result["later"] == ["a"]


def test_equals_of_a_starving_session_wait_with_it() -> None:
    snapshot = cluster(a=box(cpu=2))
    queue = [session(str(n), ask(1), at=n) for n in range(4)]
    assert placed(snapshot, *queue, now=302) == {
        "0": ["a"],
        "1": ["a"],
        "2": ["NO_ROOM"],
        "3": ["NO_ROOM"],
    }


def test_firm_reservation_stays_on_its_agent_until_the_session_starts() -> None:
    """However the others come and go: the agent that it was promised becomes free at last."""
    world = World(cluster(a=box(cpu=4), b=box(cpu=4)), policy(STARVATION_S), longest_s=3)
    world.arrive(*[session(f"s{n}", ask(2), at=-1) for n in range(4)])
    world.pass_()
    world.runs_s = {"s0": 20}
    head = session("head", ask(4), at=0)
    world.arrive(head)
    kept_on = set()
    for now in range(1, 12):
        world.now = now
        world.end()
        world.arrive(session(f"t{now:02}", ask(2), at=now), session(f"u{now:02}", ask(1), at=now))
        result = world.pass_()
        found = reservation(result)
        if found is not None:
            assert now >= STARVATION_S
            kept_on |= {kernel.agent_id for kernel in found.kernels}
    assert world.started_at["head"] <= STARVATION_S + 3
    assert len(kept_on) == 1


@settings(max_examples=60, deadline=None)
@given(
    boxes=st.lists(machines, min_size=1, max_size=4),
    gangs=st.lists(st.lists(requests, min_size=1, max_size=6), min_size=1, max_size=3),
    small=st.lists(st.tuples(requests, st.integers(1, LONGEST_S)), min_size=1, max_size=4),
    arrivals=st.integers(1, 5),
)
def test_gangs_start_in_bounded_time_while_younger_work_keeps_coming(
    boxes: list[Box],
    gangs: list[list[Resources]],
    small: list[tuple[Resources, int]],
    arrivals: int,
) -> None:
    """Gangs that would fit the empty group meet one full of small work, of which more keeps coming.

    The n-th of them starts when it has starved and what runs, then each gang before it, has ended.
    """
    snapshot = cluster(**dict(zip("abcd", boxes, strict=False)))
    world = World(snapshot, policy(STARVATION_S), longest_s=LONGEST_S)
    selector = world.state.policy.selector
    drawn = {f"gang{n}": session(f"gang{n}", *each, at=0) for n, each in enumerate(gangs)}
    waiting = {
        name: gang
        for name, gang in drawn.items()
        if fits(snapshot, selector, gang.workload) is not None
    }
    assume(waiting)
    endless = itertools.cycle(small)

    def arrive(now: int, count: int) -> None:
        for number in range(count):
            request, seconds = next(endless)
            name = f"small{now:02}-{number:02}"
            world.runs_s[name] = seconds
            world.arrive(session(name, request, at=now))

    arrive(0, 40)
    world.pass_()
    world.arrive(*waiting.values())
    for now in range(STARVATION_S + LONGEST_S * len(waiting) + 1):
        world.now = now
        world.end()
        world.pass_()
        arrive(now + 1, arrivals)
    assert waiting.keys() <= world.started_at.keys()
