"""What must hold of every placement pass."""

import copy
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import contents, policy, where
from tests.scheduling.strategies import clusters, queues

from muster.scheduling.outcome import Placed, Refused
from muster.scheduling.placement import place
from muster.scheduling.selectors import Concentrated
from muster.scheduling.snapshot import Snapshot
from muster.scheduling.workload import SessionWorkload

STARVATION_S = 3.0
examples = settings(max_examples=150, deadline=None)


@examples
@given(snapshot=clusters(), queue=queues(), now=st.integers(5, 9))
def test_nothing_placed_is_ever_over_capacity(
    snapshot: Snapshot, queue: list[SessionWorkload], now: int
) -> None:
    """Added up from the outcomes alone, against what was free before."""
    names = snapshot.columns.dimensions
    free = {
        snapshot.facts(slot).id: dict(zip(names, amounts, strict=True))
        for slot, amounts in enumerate(snapshot.columns.free.tolist())
    }
    devices = {
        snapshot.facts(slot).id: dict(enumerate(milli))
        for slot, milli in enumerate(snapshot.columns.device_free.tolist())
    }
    for outcome in place(queue, snapshot, policy(STARVATION_S), now):
        if isinstance(outcome, Refused):
            continue
        for request, kernel in zip(outcome.session.kernels, outcome.kernels, strict=True):
            assert snapshot.facts(snapshot.slot(kernel.agent_id)).accepting
            assert min(free[kernel.agent_id].values()) >= 0
            for name, amount in request.as_dict().items():
                if name != "gpu":
                    free[kernel.agent_id][name] -= amount
                    assert free[kernel.agent_id][name] >= 0
            assert sum(share.milli for share in kernel.shares) == request.gpu_milli
            assert len({share.index for share in kernel.shares}) == request.gpu_devices
            for share in kernel.shares:
                devices[kernel.agent_id][share.index] -= share.milli
                assert devices[kernel.agent_id][share.index] >= 0
    slots = range(len(snapshot))
    assert [list(free[snapshot.facts(slot).id].values()) for slot in slots] == (
        snapshot.columns.free.tolist()
    )


@examples
@given(snapshot=clusters(), queue=queues(), now=st.integers(5, 9))
def test_every_session_is_decided_once_in_fifo_order(
    snapshot: Snapshot, queue: list[SessionWorkload], now: int
) -> None:
    outcomes = place(queue, snapshot, policy(STARVATION_S), now)
    decided = [outcome.session for outcome in outcomes]
    assert decided == sorted(queue, key=lambda each: (-each.priority, each.submitted_at, each.id))
    for outcome in outcomes:
        if isinstance(outcome, Placed):
            assert len(outcome.kernels) == len(outcome.session.kernels)
        else:
            assert outcome.reasons


@examples
@given(snapshot=clusters(), queue=queues())
def test_among_equal_requests_the_first_in_the_order_start(
    snapshot: Snapshot, queue: list[SessionWorkload]
) -> None:
    refused = set()
    for outcome in place(queue, snapshot, policy(), now=6):
        if isinstance(outcome, Refused):
            refused.add((outcome.session.kernels, outcome.session.failed_agents))
        else:
            assert (outcome.session.kernels, outcome.session.failed_agents) not in refused


@examples
@given(snapshot=clusters(), queue=queues())
def test_refused_pass_repeated_refuses_the_same(
    snapshot: Snapshot, queue: list[SessionWorkload]
) -> None:
    first = [o for o in place(queue, snapshot, policy(), now=6) if isinstance(o, Refused)]
    before = contents(snapshot)
    singles = [outcome.session for outcome in first if len(outcome.session.kernels) == 1]
    again = place(singles, snapshot, policy(), now=6)
    assert all(isinstance(outcome, Refused) for outcome in again)
    assert contents(snapshot) == before


class OneByOne(Concentrated):
    """Concentrated, without the promise that lets equal kernels be placed together."""

    packs = False


@examples
@given(snapshot=clusters(), queue=queues(), now=st.integers(5, 9))
def test_placing_equals_together_is_placing_them_one_by_one(
    snapshot: Snapshot, queue: list[SessionWorkload], now: int
) -> None:
    together = policy(STARVATION_S)
    twin = copy.deepcopy(snapshot)
    expected = where(place(queue, twin, replace(together, selector=OneByOne()), now))
    assert where(place(queue, snapshot, together, now)) == expected
    assert contents(snapshot) == contents(twin)
