"""No session starves, however much younger work keeps arriving."""

import heapq
import itertools

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import Box, box, cluster, policy, session
from tests.scheduling.strategies import requests

from muster.core.resources import Resources
from muster.scheduling.outcome import Outcome, Placed
from muster.scheduling.placement import place
from muster.scheduling.snapshot import Snapshot
from muster.scheduling.workload import SessionWorkload

STARVATION_S = 6
LONGEST_S = 4
machines = st.builds(box, cpu=st.integers(1, 6), gpus=st.integers(0, 2), licence=st.integers(0, 1))


class World:
    """A cluster in which every session that starts ends after its time."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._ends: list[tuple[int, int, Placed]] = []
        self._serial = itertools.count()

    def end(self, now: int) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, _, ended = heapq.heappop(self._ends)
            for request, kernel in zip(ended.session.kernels, ended.kernels, strict=True):
                self.snapshot.give_back(kernel.agent_id, request, kernel.shares)

    def start(self, queue: list[SessionWorkload], now: int, runs_s: dict[str, int]) -> set[str]:
        started: list[Outcome] = place(queue, self.snapshot, policy(STARVATION_S), now)
        names: set[str] = set()
        for outcome in started:
            if isinstance(outcome, Placed):
                end = now + runs_s.get(outcome.session.id, LONGEST_S)
                heapq.heappush(self._ends, (end, next(self._serial), outcome))
                names.add(outcome.session.id)
        return names


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
    names = dict(zip("abcd", boxes, strict=False))
    for kernels in gangs:
        (alone,) = place([session("alone", *kernels)], cluster(**names), policy(), now=0)
        assume(isinstance(alone, Placed))
    world = World(cluster(**names))
    runs_s: dict[str, int] = {}
    endless = itertools.cycle(small)

    def arrive(now: int, count: int) -> list[SessionWorkload]:
        fresh = []
        for number in range(count):
            request, seconds = next(endless)
            fresh.append(session(f"small{now:02}-{number:02}", request, at=now))
            runs_s[fresh[-1].id] = seconds
        return fresh

    world.start(arrive(0, 40), 0, runs_s)
    waiting = [session(f"gang{n}", *kernels, at=0) for n, kernels in enumerate(gangs)]
    unstarted = {gang.id for gang in waiting}
    for now in range(STARVATION_S + LONGEST_S * len(gangs) + 1):
        world.end(now)
        started = world.start(waiting, now, runs_s)
        unstarted -= started
        waiting = [each for each in waiting if each.id not in started]
        waiting += arrive(now + 1, arrivals)
    assert not unstarted
