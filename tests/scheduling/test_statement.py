"""A statement leaves no trace of what it does not keep."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import ask, box, cluster, contents, workload

from muster.core.resources import DeviceShare, Resources
from muster.scheduling.cluster.snapshot import OverCapacity
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.fit import fill
from muster.scheduling.policy.selectors import Concentrated

requests = st.builds(
    ask,
    cpu=st.integers(0, 3),
    gib=st.integers(0, 4),
    gpu=st.sampled_from([0, 0.3, 0.5, 1, 2]),
)
batches = st.lists(st.tuples(requests, st.integers(1, 5)), max_size=6)


@settings(deadline=None)
@given(kept=batches, tried=batches)
def test_rollback_restores_the_snapshot_exactly(
    kept: list[tuple[Resources, int]], tried: list[tuple[Resources, int]]
) -> None:
    snapshot = cluster(a=box(7, 9, gpus=3), b=box(5, 30, gpus=1), c=box(3, 3))
    with Statement(snapshot) as statement:
        for request, count in kept:
            fill(statement, Concentrated(), workload(request), count)
        statement.keep()
    before = contents(snapshot)

    with Statement(snapshot) as statement:
        for request, count in tried:
            fill(statement, Concentrated(), workload(request), count)
    assert contents(snapshot) == before


def test_snapshot_is_to_try_on_while_somebody_only_looks() -> None:
    snapshot = cluster(a=box())
    seen = [snapshot.is_trial]
    with Statement(snapshot, trial=True) as statement:
        seen.append(snapshot.is_trial)
        with Statement(snapshot):
            seen.append(snapshot.is_trial)
        seen.append(snapshot.is_trial)
        with pytest.raises(AssertionError):
            statement.keep()
    with Statement(snapshot):
        seen.append(snapshot.is_trial)
    assert seen == [False, True, True, True, False]


def test_copies_are_to_try_on() -> None:
    snapshot = cluster(a=box())
    copies = snapshot.copy(), snapshot.emptied(), snapshot
    assert [each.is_trial for each in copies] == [True, True, False]


def test_rollback_to_a_mark_keeps_what_came_before() -> None:
    snapshot = cluster(a=box(cpu=8, gpus=2))
    with Statement(snapshot) as statement:
        statement.take(0, ask(1, gpu=1), (DeviceShare(0, 1000),))
        mark = statement.mark()
        statement.take(0, ask(2), copies=3)
        statement.rollback(mark)
        statement.keep()
    assert snapshot.columns.free[0, 0] == 7000
    assert snapshot.columns.device_free.tolist() == [[0, 1000]]


def test_exception_rolls_back_whole() -> None:
    snapshot = cluster(a=box(cpu=4))
    before = contents(snapshot)
    with pytest.raises(OverCapacity), Statement(snapshot) as statement:  # noqa: PT012
        statement.take(0, ask(3))
        statement.take(0, ask(3))
    assert contents(snapshot) == before
