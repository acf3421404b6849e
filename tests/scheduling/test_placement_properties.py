"""Properties of every placement pass."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import World, contents, context, name_of, passed, policy, where
from tests.scheduling.strategies import clusters, queues, worlds

from muster.core.ids import SessionId
from muster.core.specs.group import QueuePolicy
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.passes.placement import place
from muster.scheduling.passes.queue import Queue
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import SessionWorkload, WorkloadClass

STARVATION_S = 3.0
examples = settings(max_examples=120, deadline=None)
policies = st.sampled_from(QueuePolicy)


@examples
@given(snapshot=clusters(), queue=queues(), now=st.integers(5, 9), by=policies)
def test_nothing_placed_is_ever_over_capacity(
    snapshot: Snapshot, queue: list[SessionWorkload], now: int, by: QueuePolicy
) -> None:
    """Added up from what was placed alone, against what was free before."""
    names = snapshot.columns.dimensions
    free = {
        snapshot.facts(slot).id: dict(zip(names, amounts, strict=True))
        for slot, amounts in enumerate(snapshot.columns.free.tolist())
    }
    devices = {
        snapshot.facts(slot).id: dict(enumerate(milli))
        for slot, milli in enumerate(snapshot.columns.device_free.tolist())
    }
    result = passed(snapshot, *queue, now=now, starvation_after=STARVATION_S, queue=by)
    for session, kernels in result.placed:
        for request, kernel in zip(session.workload.kernels, kernels, strict=True):
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
@given(snapshot=clusters(), queue=queues(), now=st.integers(5, 9), by=policies)
def test_every_session_is_decided_once_and_gangs_start_whole(
    snapshot: Snapshot, queue: list[SessionWorkload], now: int, by: QueuePolicy
) -> None:
    result = passed(snapshot, *queue, now=now, starvation_after=STARVATION_S, queue=by)
    started = [each for each, _ in result.placed]
    assert started == sorted(started, key=lambda e: (-e.workload.priority, e.submitted_at, e.id))
    assert all(len(kernels) == len(each.workload.kernels) for each, kernels in result.placed)
    for members, reasons in result.refused.items():
        assert reasons
        assert any(each not in started for each in members)
    left = {each.workload for each in queue if each not in started}
    assert {members.workload for members in result.refused} == left


@examples
@given(snapshot=clusters(), queue=queues(), by=policies)
def test_among_equals_the_first_in_the_order_start(
    snapshot: Snapshot, queue: list[SessionWorkload], by: QueuePolicy
) -> None:
    result = passed(snapshot, *queue, now=6, queue=by)
    started = [each for each, _ in result.placed]
    by_class: dict[WorkloadClass, list[SessionWorkload]] = {}
    for each in sorted(queue, key=lambda e: (e.submitted_at, e.id)):
        by_class.setdefault(each.workload, []).append(each)
    for members in by_class.values():
        went = [each in started for each in members]
        assert went == sorted(went, reverse=True), [name_of(each) for each in members]


@examples
@given(world=worlds(), by=policies)
def test_pass_over_what_has_not_changed_places_nothing(world: World, by: QueuePolicy) -> None:
    world.state.use(policy(STARVATION_S, queue=by))
    world.pass_()
    before = contents(world.state.snapshot)
    assert not world.pass_().placed
    assert contents(world.state.snapshot) == before


@examples
@given(
    world=worlds(), by=st.sampled_from([QueuePolicy.STRICT, QueuePolicy.BEST_EFFORT]), d=st.data()
)
def test_what_the_queue_remembers_changes_no_decision(
    world: World, by: QueuePolicy, d: st.DataObject
) -> None:
    """While sessions come and go, one that remembers decides like one that does not. (Under
    backfill what was kept for the head may differ from what would be kept anew.)"""
    world.state.use(policy(queue=by))
    for turn in range(3):
        world.pass_()
        for id_ in sorted(world.state.placed):
            if d.draw(st.booleans(), label=f"{id_} ends"):
                world.leave(id_)
        for each in d.draw(queues(max_size=2), label="come"):
            world.arrive(replace(each, id=SessionId(f"{each.id}-{turn}")))
        twin = world.state.snapshot.copy()
        forgetful = replace(world.context(), snapshot=twin)
        expected = where(place(Queue(world.state.queue), twin, world.state.policy, forgetful))
        assert where(world.pass_()) == expected


class OneByOne(Concentrated):
    """Concentrated, without the promise that lets equal kernels be placed together."""

    packs = False
    ranking = None


@examples
@given(snapshot=clusters(), queue=queues(), now=st.integers(5, 9), by=policies)
def test_placing_equals_together_is_placing_them_one_by_one(
    snapshot: Snapshot, queue: list[SessionWorkload], now: int, by: QueuePolicy
) -> None:
    together = policy(STARVATION_S, queue=by)
    twin = snapshot.copy()
    one_by_one = replace(together, selector=OneByOne())
    expected = where(place(Queue(queue), twin, one_by_one, context(twin, now=now)))
    assert where(place(Queue(queue), snapshot, together, context(snapshot, now=now))) == expected
    assert contents(snapshot) == contents(twin)
