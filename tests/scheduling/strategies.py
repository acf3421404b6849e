"""Any small cluster, partly in use, and any small queue for it."""

from hypothesis import strategies as st
from tests.scheduling.clusters import (
    ANN,
    BOB,
    Box,
    World,
    ask,
    box,
    cluster,
    policy,
    session,
    workload,
)

from muster.core.resources import Resources
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.fit import fill
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import SessionWorkload

machines = st.builds(box, cpu=st.integers(1, 6), gpus=st.integers(0, 2), licence=st.integers(0, 1))
requests: st.SearchStrategy[Resources] = st.builds(
    ask,
    cpu=st.sampled_from([0, 0.5, 1, 2, 3, 5]),
    gib=st.sampled_from([0, 1, 4]),
    gpu=st.sampled_from([0, 0, 0.25, 0.5, 0.7, 1, 2]),
    licence=st.sampled_from([0, 0, 0, 1]),
)

boxes: st.SearchStrategy[Box] = st.builds(
    box,
    cpu=st.integers(0, 6),
    gib=st.sampled_from([2, 8]),
    gpus=st.integers(0, 3),
    status=st.sampled_from(["ALIVE"] * 4 + ["UNREACHABLE", "LOST"]),
    has=st.sampled_from([{}, {"rack": "x"}, {"rack": "y"}]),
    licence=st.integers(0, 2),
)


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Up to five agents, some work already on them, one perhaps overbooked."""
    snapshot = cluster(**dict(zip("abcde", draw(st.lists(boxes, max_size=5)), strict=False)))
    with Statement(snapshot) as statement:
        for request, count in draw(st.lists(st.tuples(requests, st.integers(1, 3)), max_size=3)):
            fill(statement, Concentrated(), workload(request), count)
        statement.keep()
    if len(snapshot) and draw(st.integers(0, 4)) == 0:
        snapshot.take(snapshot.facts(0).id, ask(draw(st.integers(1, 9))), force=True)
    return snapshot


@st.composite
def queues(draw: st.DrawFn, max_size: int = 8) -> list[SessionWorkload]:
    """Sessions of few distinct requests, so that equal ones meet; every third one a gang."""
    shapes = draw(st.lists(requests, min_size=1, max_size=3))
    owners = st.sampled_from([ANN, BOB]) if draw(st.booleans()) else st.just(ANN)
    queue = []
    for index in range(draw(st.integers(0, max_size))):
        kernels = [draw(st.sampled_from(shapes))]
        if draw(st.integers(0, 2)) == 0:
            kernels = draw(st.lists(st.sampled_from(shapes), min_size=2, max_size=5))
        rules = draw(st.sampled_from([{}, {"together": "rack"}]))
        queue.append(
            session(
                str(index),
                *kernels,
                at=draw(st.integers(0, 5)),
                owner=draw(owners),
                priority=draw(st.sampled_from([50, 50, 80])),
                failed=draw(st.sampled_from(["", "", "a", "bc"])),
                runs_s=draw(st.sampled_from([None, None, 2, 5])),
                **rules,
            )
        )
    return queue


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A small cluster at 4, partly taken by sessions that started at 0, and a queue for it."""
    named = dict(zip("abcd", draw(st.lists(boxes, max_size=4)), strict=False))
    world = World(cluster(**named), policy(queue="best_effort"))
    for index, request in enumerate(draw(st.lists(requests, max_size=5))):
        runs_s = draw(st.sampled_from([None, 5, 6, 9]))
        priority = draw(st.sampled_from([20, 50]))
        world.arrive(session(f"old{index}", request, runs_s=runs_s, priority=priority))
    world.pass_()
    for waiting in list(world.state.queue):
        world.state.withdraw(waiting.id)
    world.arrive(*draw(queues()))
    world.now = 4
    return world
