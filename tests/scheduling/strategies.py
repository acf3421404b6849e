"""Any small cluster, partly in use, and any small queue for it."""

from hypothesis import strategies as st
from tests.scheduling.clusters import Box, ask, box, cluster, session

from muster.core.resources import Resources
from muster.scheduling.fit import fill
from muster.scheduling.selectors import Concentrated
from muster.scheduling.snapshot import Snapshot
from muster.scheduling.statement import Statement
from muster.scheduling.workload import SessionWorkload

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
    licence=st.integers(0, 2),
)


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Up to five agents, some work already on them, one perhaps overbooked."""
    snapshot = cluster(**dict(zip("abcde", draw(st.lists(boxes, max_size=5)), strict=False)))
    with Statement(snapshot) as statement:
        for request, count in draw(st.lists(st.tuples(requests, st.integers(1, 3)), max_size=3)):
            fill(statement, Concentrated(), request, count, frozenset())
        statement.keep()
    if len(snapshot) and draw(st.integers(0, 4)) == 0:
        snapshot.take(snapshot.facts(0).id, ask(draw(st.integers(1, 9))), force=True)
    return snapshot


@st.composite
def queues(draw: st.DrawFn, max_size: int = 8) -> list[SessionWorkload]:
    """Sessions of few distinct requests, so that equal ones meet; every third one a gang."""
    shapes = draw(st.lists(requests, min_size=1, max_size=3))
    queue = []
    for index in range(draw(st.integers(0, max_size))):
        kernels = [draw(st.sampled_from(shapes))]
        if draw(st.integers(0, 2)) == 0:
            kernels = draw(st.lists(st.sampled_from(shapes), min_size=2, max_size=5))
        queue.append(
            session(
                str(index),
                *kernels,
                at=draw(st.integers(0, 5)),
                priority=draw(st.sampled_from([50, 50, 80])),
                failed=draw(st.sampled_from(["", "", "a", "bc"])),
            )
        )
    return queue
