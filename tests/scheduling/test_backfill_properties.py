"""Nobody who waits in front is delayed by what overtakes, and nobody starves."""

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import (
    Box,
    World,
    ask,
    box,
    cluster,
    contents,
    name_of,
    policy,
    reservation,
    session,
)
from tests.scheduling.strategies import machines, requests

from muster.core.resources import Resources
from muster.scheduling.making_room.freed_room import Departures, Occupancy, fits
from muster.scheduling.passes.pass_result import PassResult
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import SessionWorkload

STARVATION_S = 6
LONGEST_S = 5
SELECTOR = Concentrated()

clusters = st.lists(machines, min_size=1, max_size=4)


class Backfill(World):
    """A group under backfill, to which sessions without priorities come at their times, those that
    fit it at all; ``promised`` are the times at which each head was told that it starts."""

    def __init__(
        self, boxes: Sequence[Box], coming: Iterable[SessionWorkload], runs_s: Mapping[str, float]
    ) -> None:
        snapshot = cluster(**dict(zip("abcd", boxes, strict=False)))
        super().__init__(snapshot, policy(STARVATION_S), runs_s)
        self.coming: list[SessionWorkload] = []
        self.promised: dict[str, list[float]] = {}
        self.come(coming)

    def come(self, sessions: Iterable[SessionWorkload]) -> None:
        empty = self.state.snapshot.emptied()
        self.coming += [each for each in sessions if fits(empty, SELECTOR, each.workload)]

    def pass_(self) -> PassResult:
        self.arrive(*[each for each in self.coming if each.submitted_at <= self.now])
        self.coming = [each for each in self.coming if each.submitted_at > self.now]
        result = super().pass_()
        columns, kept = self.state.snapshot.columns, reservation(result)
        assert columns.free.min() >= 0, "what is held is there"
        assert columns.device_free.min(initial=0) >= 0
        if kept is not None and kept.expected_at is not None:
            name = kept.session.removeprefix("ses-")
            self.promised.setdefault(name, []).append(kept.expected_at)
        return result


def honest_world(seed: int) -> Backfill:
    """Sessions that end when they said, or before; some say nothing.

    From a seed, not drawn piece by piece: those would mostly be too simple for anybody to wait.
    """
    draw = random.Random(seed)
    boxes = [
        box(cpu=draw.randint(1, 6), gpus=draw.choice([0, 1, 2]), licence=draw.randint(0, 1))
        for _ in range(draw.randint(1, 4))
    ]
    queue, runs_s = [], {}
    for number in range(draw.randint(2, 20)):
        kernels = [
            ask(
                draw.choice([0.5, 1, 2, 3]),
                gpu=draw.choice([0, 0, 0, 0.25, 0.5, 0.7, 1, 2]),
                licence=draw.choice([0, 0, 0, 1]),
            )
            for _ in range(draw.choice([1, 1, 2, 4]))
        ]
        really = draw.randint(1, LONGEST_S)
        said = draw.choice([really, really, really + 2, None])
        each = session(f"{number:02}", *kernels, at=draw.randint(0, 6), runs_s=said)
        queue.append(each)
        runs_s[name_of(each)] = float(really)
    return Backfill(boxes, queue, runs_s)


honest_worlds = st.integers(0, 2**32).map(honest_world)


@settings(max_examples=150, deadline=None)
@given(world=honest_worlds)
def test_head_starts_by_the_time_it_was_first_promised(world: Backfill) -> None:
    for world.now in range(LONGEST_S * 20):
        world.end()
        world.pass_()
        if not world.coming and not world.state.waiting and not world.state.placed:
            break
    assert not world.state.waiting
    for name, promised in world.promised.items():
        assert promised == sorted(promised, reverse=True), "the time never moves back"
        assert world.started_at[name] <= promised[-1]


def test_backfill_does_overtake() -> None:
    """The properties would hold of a queue in which nothing ever overtakes."""
    blocked = session("blocked", *[ask(4)] * 2, at=-4)
    short = session("short", ask(1), at=-2, runs_s=2)
    fits_beside = session("beside", ask(2), at=-1)
    long = session("long", ask(1), at=-3, runs_s=50)
    first = session("first", ask(4), at=-5, runs_s=3)
    queue = [first, blocked, long, short, fits_beside]
    runs_s = {name_of(each): 2.0 for each in queue}
    world = Backfill([box(cpu=4), box(cpu=4), box(cpu=2)], queue, runs_s)
    world.pass_()
    assert world.promised == {name_of(blocked): [3]}
    assert list(world.started_at) == [name_of(each) for each in (first, long, short)]
    where = {id_: each.kernels[0].agent_id for id_, each in world.context().running.items()}
    assert where[long.id] == "agt-c", "it would have been in the way elsewhere"


@settings(max_examples=40, deadline=None)
@given(
    boxes=clusters,
    gangs=st.lists(st.lists(requests, min_size=1, max_size=6), min_size=1, max_size=3),
    small=st.lists(
        st.tuples(requests, st.integers(1, LONGEST_S), st.sampled_from([None, None, 0.5, 1, 9])),
        min_size=1,
        max_size=4,
    ),
    arrivals=st.integers(1, 5),
)
def test_every_head_starts_whatever_arrives_and_whatever_it_says(
    boxes: list[Box],
    gangs: list[list[Resources]],
    small: list[tuple[Resources, int, float | None]],
    arrivals: int,
) -> None:
    """Gangs wait in front of ever more small work, which says nothing of its run time or lies."""
    waiting = [session(f"gang{number}", *gang, at=0) for number, gang in enumerate(gangs)]
    runs_s = {name_of(each): float(LONGEST_S) for each in waiting}
    endless = itertools.cycle(small)
    numbers = itertools.count()

    def arrive(now: float, count: int) -> Iterator[SessionWorkload]:
        for _ in range(count):
            request, really, said = next(endless)
            each = session(f"small{next(numbers):04}", request, at=now, runs_s=said)
            world.runs_s[name_of(each)] = float(really)
            yield each

    world = Backfill(boxes, (), runs_s)
    world.come(arrive(0, 20))
    world.pass_()
    for left in list(world.state.queue):
        world.state.withdraw(left.id)
    world.come(waiting)
    gangs_to_start = {name_of(each) for each in world.coming}
    longest = STARVATION_S + 3 * LONGEST_S * (len(gangs) + 1)
    for world.now in range(1, longest):
        world.end()
        world.come(arrive(world.now, arrivals))
        world.pass_()
    assert gangs_to_start <= world.started_at.keys()


@settings(max_examples=100, deadline=None)
@given(world=honest_worlds, data=st.data())
def test_leaving_in_bulk_is_leaving_one_by_one(world: Backfill, data: st.DataObject) -> None:
    world.now = 10
    world.pass_()
    everybody = list(world.context().running.values())
    ends = st.sampled_from([1.0, 2.0, 3.0, np.inf])
    keys = np.array([data.draw(ends) for _ in everybody], np.float64)
    departures = Departures(world.state.snapshot, Occupancy(world.state.snapshot, everybody), keys)
    before = contents(world.state.snapshot)
    for step in data.draw(st.lists(st.integers(0, len(departures.ends)), max_size=5)):
        departures.go(step)
        twin = world.state.snapshot.copy()
        for each, key in zip(everybody, keys, strict=True):
            if key <= departures.end:
                for request, kernel in zip(each.workload.kernels, each.kernels, strict=True):
                    twin.columns.move(twin.slot(kernel.agent_id), request, kernel.shares, +1)
        assert contents(departures.snapshot) == contents(twin)
    assert contents(world.state.snapshot) == before
