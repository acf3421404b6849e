"""Nobody who waits in front is delayed by what overtakes, and nobody starves."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import Box, ask, box, cluster, contents, session
from tests.scheduling.strategies import requests

from muster.core.ids import SessionId
from muster.core.resources import Resources
from muster.scheduling.departures import Departures, Held, fits
from muster.scheduling.fit import fit_session
from muster.scheduling.reservation import Binding, Reservation, reserve
from muster.scheduling.selectors import Concentrated
from muster.scheduling.statement import Statement
from muster.scheduling.workload import KernelPlacement, RunningSession, SessionWorkload

STARVATION_S = 6
LONGEST_S = 5
SELECTOR = Concentrated()

machines = st.builds(box, cpu=st.integers(1, 6), gpus=st.integers(0, 2), licence=st.integers(0, 1))
clusters = st.lists(machines, min_size=1, max_size=4)


@dataclass
class World:
    """A queue without priorities under backfill, where time passes from pass to pass.

    ``runs_s`` says how long sessions really run; what they said is in their class.
    """

    boxes: list[Box]
    queue: list[SessionWorkload]
    runs_s: dict[SessionId, float]
    now: float = 0
    running: dict[SessionId, RunningSession] = field(default_factory=dict)
    started_at: dict[SessionId, float] = field(default_factory=dict)
    promised: dict[SessionId, list[float]] = field(default_factory=dict)
    overtaken: int = 0
    previous: Reservation | None = None

    def __post_init__(self) -> None:
        self.snapshot = cluster(**dict(zip("abcd", self.boxes, strict=False)))
        empty = self.snapshot.emptied()
        self.queue = [each for each in self.queue if fits(empty, SELECTOR, each.what)]

    def end(self) -> None:
        for each in list(self.running.values()):
            if each.started_at + self.runs_s[each.id] <= self.now:
                del self.running[each.id]
                for request, kernel in zip(each.what.kernels, each.kernels, strict=True):
                    self.snapshot.give_back(kernel.agent_id, request, kernel.shares)

    def pass_(self) -> None:
        """Start from the head on; past one that lacks room, what does not delay it."""
        waiting = [each for each in self.queue if each.submitted_at <= self.now]
        with Statement(self.snapshot) as statement:
            while waiting and self.start_head(statement, waiting[0]):
                waiting.pop(0)
            if waiting:
                self.backfill(statement, waiting)
            statement.keep()

    def start_head(self, statement: Statement, head: SessionWorkload) -> bool:
        kernels = fit_session(statement, SELECTOR, head.what).kernels
        if kernels is None and self.previous is not None and self.previous.session == head.id:
            kernels = self.previous.start(statement)
        return self.started(head, kernels)

    def backfill(self, statement: Statement, waiting: list[SessionWorkload]) -> None:
        head = waiting[0]
        firm = self.now - head.submitted_at >= STARVATION_S
        found = self.previous = reserve(
            head, self.snapshot, self.running, SELECTOR, self.now, firm, self.previous
        )
        if found is None:
            for each in waiting[1:]:
                self.started(each, fit_session(statement, SELECTOR, each.what).kernels)
            return
        if found.expected_at is not None:
            self.promised.setdefault(head.id, []).append(found.expected_at)
        binding = Binding(found, self.snapshot)
        for each in waiting[1:]:
            unbound = found.admits(each.what, self.now)
            if unbound:
                binding.lift()
            else:
                binding.bind()
            kernels = fit_session(statement, SELECTOR, each.what).kernels
            if kernels is not None and unbound:
                binding.lend(each.what, kernels)
            self.overtaken += self.started(each, kernels)
            columns = self.snapshot.columns
            assert columns.free.min() >= 0, "what is held is there"
            assert columns.device_free.min(initial=0) >= 0
        binding.lift()

    def started(self, which: SessionWorkload, kernels: tuple[KernelPlacement, ...] | None) -> bool:
        if kernels is None:
            return False
        self.queue.remove(which)
        ends_at = None if which.what.duration_s is None else self.now + which.what.duration_s
        self.running[which.id] = RunningSession(which.id, which.what, kernels, self.now, ends_at)
        self.started_at[which.id] = self.now
        return True


def honest_world(seed: int) -> World:
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
        runs_s[each.id] = float(really)
    queue.sort(key=lambda each: (each.submitted_at, each.id))
    return World(boxes, queue, runs_s)


honest_worlds = st.integers(0, 2**32).map(honest_world)


@settings(max_examples=150, deadline=None)
@given(world=honest_worlds)
def test_head_starts_by_the_time_it_was_first_promised(world: World) -> None:
    for world.now in range(LONGEST_S * 20):
        world.end()
        world.pass_()
        if not world.queue and not world.running:
            break
    assert not world.queue
    for id_, promised in world.promised.items():
        assert promised == sorted(promised, reverse=True), "the time never moves back"
        assert world.started_at[id_] <= promised[-1]


def test_backfill_does_overtake() -> None:
    """The properties would hold of a queue in which nothing ever overtakes."""
    blocked = session("blocked", *[ask(4)] * 2, at=0)
    short = session("short", ask(1), at=0, runs_s=2)
    fits_beside = session("beside", ask(2), at=0)
    long = session("long", ask(1), at=0, runs_s=50)
    first = session("first", ask(4), at=0, runs_s=3)
    queue = [first, blocked, long, short, fits_beside]
    world = World([box(cpu=4), box(cpu=4), box(cpu=2)], queue, {each.id: 2.0 for each in queue})
    world.pass_()
    assert world.promised == {blocked.id: [3]}
    assert list(world.started_at) == [first.id, long.id, short.id]
    where = {id_: each.kernels[0].agent_id for id_, each in world.running.items()}
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
    runs_s: dict[SessionId, float] = {each.id: float(LONGEST_S) for each in waiting}
    endless = itertools.cycle(small)
    numbers = itertools.count()

    def arrive(now: float, count: int) -> Iterator[SessionWorkload]:
        for _ in range(count):
            request, really, said = next(endless)
            each = session(f"small{next(numbers):04}", request, at=now, runs_s=said)
            runs_s[each.id] = float(really)
            yield each

    world = World(boxes, list(arrive(0, 20)), runs_s)
    world.pass_()
    world.queue = World(boxes, waiting, runs_s).queue
    gang_ids = {each.id for each in world.queue}
    longest = STARVATION_S + 3 * LONGEST_S * (len(gangs) + 1)
    for world.now in range(1, longest):
        world.end()
        world.queue += World(boxes, list(arrive(world.now, arrivals)), runs_s).queue
        world.pass_()
    assert gang_ids <= world.started_at.keys()


@settings(max_examples=100, deadline=None)
@given(world=honest_worlds, data=st.data())
def test_leaving_in_bulk_is_leaving_one_by_one(world: World, data: st.DataObject) -> None:
    world.now = 10
    world.pass_()
    everybody = list(world.running.values())
    ends = st.sampled_from([1.0, 2.0, 3.0, np.inf])
    keys = np.array([data.draw(ends) for _ in everybody], np.float64)
    departures = Departures(world.snapshot, Held(world.snapshot, everybody), keys)
    before = contents(world.snapshot)
    for step in data.draw(st.lists(st.integers(0, len(departures.ends)), max_size=5)):
        departures.go(step)
        twin = world.snapshot.copy()
        for each, key in zip(everybody, keys, strict=True):
            if key <= departures.end:
                for request, kernel in zip(each.what.kernels, each.kernels, strict=True):
                    twin.columns.move(twin.slot(kernel.agent_id), request, kernel.shares, +1)
        assert contents(departures.snapshot) == contents(twin)
    assert contents(world.snapshot) == before
