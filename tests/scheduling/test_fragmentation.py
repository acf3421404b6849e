"""The fragmentation selector: what it leaves whole, and that what it remembers is what is so."""

import random

import numpy as np
import pytest
from benchmarks import b4, openb
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import (
    Box,
    agent,
    ask,
    box,
    cluster,
    places,
    policy,
    put,
    session,
    where,
    workload,
)
from tests.scheduling.clusters import World as ClusterWorld

from muster.core.errors import MusterError
from muster.core.resources import DeviceShare, Resources
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.explaining.explain import explain
from muster.scheduling.fitting.fit import fill
from muster.scheduling.policy.plugins import LearningSelector
from muster.scheduling.policy.selectors import Fragmentation
from muster.scheduling.policy.selectors.cutting_stock import piece_values
from muster.scheduling.policy.selectors.request_mix import MAX_SHAPES, RequestMix, WholeShape
from muster.scheduling.policy.selectors.worth import WORTH_FACTOR, Prices, WorthTable
from muster.scheduling.workload import KernelPlacement


def taken(
    snapshot: Snapshot, selector: Fragmentation, request: Resources, count: int = 1
) -> list[KernelPlacement]:
    with Statement(snapshot) as statement:
        found = fill(statement, selector, workload(request), count)
        statement.keep()
    return found


def placed(
    snapshot: Snapshot, selector: Fragmentation, request: Resources, count: int = 1
) -> list[str]:
    return places(taken(snapshot, selector, request, count))


def that_has_seen(*asked: tuple[Resources, int], seed: int = 0) -> Fragmentation:
    selector = Fragmentation(seed=seed)
    for request, kernels in asked:
        selector.arrived(request, kernels)
    return selector


def only(request: Resources, models: tuple[str, ...]) -> Resources:
    return Resources(request.cpu_milli, gpu_milli=request.gpu_milli, gpu_models=models)


# What is left whole


def test_fraction_goes_where_the_rest_of_the_device_still_serves() -> None:
    snapshot = cluster(a=box(gpus=2))
    snapshot.take(agent("a"), ask(0, gpu=0.35), (DeviceShare(0, 350),))
    snapshot.take(agent("a"), ask(0, gpu=0.53), (DeviceShare(1, 530),))
    selector = that_has_seen((ask(0, gpu=0.65), 50), (ask(0, gpu=0.35), 50))
    # 350 leave 300 of the first, which nothing that comes can use, and 120 of the other: neither
    # could be used. But the first could have had 650.
    assert placed(snapshot, selector, ask(0, gpu=0.35)) == ["a:1=350"]
    assert placed(snapshot, selector, ask(0, gpu=0.65)) == ["a:0=650"]


def test_fraction_opens_no_device_while_one_in_use_has_room_for_it() -> None:
    snapshot = cluster(a=box(gpus=3))
    selector = that_has_seen((ask(0, gpu=0.5), 60), (ask(0, gpu=1), 10))
    assert placed(snapshot, selector, ask(0, gpu=0.5), 4) == [
        *("a:0=500", "a:0=500", "a:1=500", "a:1=500")
    ]


def test_gpu_is_not_left_without_cpus_when_another_agent_has_plenty() -> None:
    poor, rich = box(cpu=8, gpus=1), box(cpu=32, gpus=1)
    for boxes in ({"poor": poor, "rich": rich}, {"rich": rich, "poor": poor}):
        selector = that_has_seen((ask(4, gpu=0.5), 100))
        assert placed(cluster(**boxes), selector, ask(8, gpu=0.5)) == ["rich:0=500"]


def test_single_gpus_are_taken_where_no_gang_of_gpus_fits() -> None:
    small = {f"s{n}": box(cpu=16, gpus=1) for n in range(3)}
    snapshot = cluster(large=box(cpu=128, gpus=8), **small)
    selector = that_has_seen((ask(64, gpu=8), 20), (ask(8, gpu=1), 80))
    homes = [place.partition(":")[0] for place in placed(snapshot, selector, ask(8, gpu=1), 3)]
    assert sorted(homes) == ["s0", "s1", "s2"]
    assert placed(snapshot, selector, ask(64, gpu=8)) == ["large:0,1,2,3,4,5,6,7"]


def test_large_agent_that_is_broken_already_is_taken_before_one_that_is_whole() -> None:
    snapshot = cluster(whole=box(cpu=64, gpus=8), broken=box(cpu=64, gpus=8))
    snapshot.take(agent("broken"), ask(8, gpu=1), (DeviceShare(3, 1000),))
    selector = that_has_seen((ask(64, gpu=8), 20), (ask(8, gpu=1), 80))
    assert placed(snapshot, selector, ask(8, gpu=1)) == ["broken:0"]


def test_work_without_gpus_goes_where_the_gpus_are_in_use() -> None:
    snapshot = cluster(idle=box(cpu=8, gpus=1), busy=box(cpu=8, gpus=1))
    snapshot.take(agent("busy"), ask(1, gpu=1), (DeviceShare(0, 1000),))
    assert placed(snapshot, that_has_seen((ask(4, gpu=1), 50)), ask(4)) == ["busy"]


def test_only_models_that_are_allowed_are_taken() -> None:
    snapshot = cluster(a=box(gpus=2, model="A100"), h=box(gpus=2, model="NVIDIA H100 80GB"))
    selector = Fragmentation()
    part, whole = only(ask(1, gpu=0.5), ("H100",)), only(ask(1, gpu=1), ("A100",))
    selector.arrived(part, 30)
    selector.arrived(whole, 30)
    assert placed(snapshot, selector, part, 3) == ["h:0=500", "h:0=500", "h:1=500"]
    assert placed(snapshot, selector, whole, 3) == ["a:0", "a:1"]


def test_agents_that_only_some_can_use_are_left_to_those_who_need_them() -> None:
    snapshot = cluster(a=box(gpus=1, model="A100"), h=box(gpus=1, model="H100"))
    needy = only(ask(1, gpu=1), ("A100",))
    selector = that_has_seen((needy, 50), (ask(1, gpu=1), 50))
    assert placed(snapshot, selector, ask(1, gpu=1)) == ["h:0"]


# The mix that it expects


def test_mix_that_has_changed_is_followed_with_a_half_life() -> None:
    for half_life, worthless in ((None, False), (100, True)):
        mix = RequestMix(half_life)
        mix.add(ask(0, gpu=0.19), 1000)
        mix.add(ask(0, gpu=0.81), 5000)
        share = mix.fractions[190] / mix.fractions[810]
        assert (share < 1e-6) is worthless


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([250, 500, 1000, 2000]), st.integers(1, 10**6))))
def test_weights_stay_finite_whatever_arrives(asked: list[tuple[int, int]]) -> None:
    mix = RequestMix(half_life=0.5)
    for milli, kernels in asked:
        mix.add(Resources(1000, gpu_milli=milli), kernels)
    weights = [*mix.fractions.values(), *mix.wholes.values()]
    assert all(0 <= weight < float("inf") for weight in weights)
    assert mix.cpu_milli_per_gpu < float("inf")


def test_only_so_many_shapes_are_remembered_the_commonest_and_the_newest() -> None:
    mix = RequestMix()
    mix.add(ask(1, gpu=1), 5)
    for cpus in range(2, MAX_SHAPES + 2):
        mix.add(ask(cpus, gpu=1), 1)
    assert len(mix.wholes) <= MAX_SHAPES
    assert WholeShape(1000, 1, ()) in mix.wholes
    assert WholeShape((MAX_SHAPES + 1) * 1000, 1, ()) in mix.wholes


@pytest.mark.parametrize("half_life", [0, -1, float("nan"), float("inf"), "7d", True])
def test_half_life_must_be_above_zero(half_life: float) -> None:
    with pytest.raises(MusterError, match="half_life is a number of kernels above 0, not"):
        Fragmentation(half_life=half_life)


@pytest.mark.parametrize("seed", ["abc", -1, 1.5, True, None])
def test_seed_must_be_a_whole_number_from_zero_on(seed: int) -> None:
    with pytest.raises(MusterError, match=f"seed is a whole number from 0 on, not {seed!r}"):
        Fragmentation(seed=seed)


def test_it_learns() -> None:
    assert isinstance(Fragmentation(), LearningSelector)


# Equals


def test_among_equals_a_fixed_order_decides_by_the_seed_alone() -> None:
    def first(seed: int) -> str:
        snapshot = cluster(**{f"n{n}": box(gpus=1) for n in range(20)})
        return placed(snapshot, Fragmentation(seed=seed), ask(1, gpu=1))[0]

    assert first(7) == first(7)
    assert len({first(seed) for seed in range(10)}) > 3


def test_order_of_those_there_does_not_change_when_others_join() -> None:
    few, selector = cluster(a=box(gpus=1), b=box(gpus=1), c=box(gpus=1)), Fragmentation(seed=3)
    ranks = selector._ranks(3)[:3].tolist()
    for n in range(50):
        put(few, f"n{n}", box(gpus=1))
    placed(few, selector, ask(1, gpu=1))
    assert selector._ranks(53)[:3].tolist() == ranks


# Memory

SHAPES = [
    *(ask(1.5), ask(0), ask(0.25, gpu=0.25), ask(1, gpu=0.47), ask(0.5, gpu=0.81)),
    *(ask(0, gpu=0.5), ask(1, gpu=1), ask(2.5, gpu=2), ask(0, gpu=1)),
    *(only(ask(1, gpu=1), ("A100",)), only(ask(0.5, gpu=0.3), ("H100", "T4"))),
]
machines = st.builds(
    box,
    cpu=st.sampled_from([0, 2, 4, 8]),
    gpus=st.integers(0, 4),
    model=st.sampled_from(["A100", "H100", "T4"]),
    status=st.sampled_from(["ALIVE", "ALIVE", "ALIVE", "LOST"]),
)


def test_a_trial_copy_teaches_nothing_and_answers_as_the_same_cluster_would() -> None:
    snapshot = cluster(a=box(cpu=64, gpus=8), b=box(cpu=16, gpus=2))
    snapshot.take(agent("b"), ask(2, gpu=1), (DeviceShare(0, 1000),))
    selector = that_has_seen((ask(8, gpu=1), 40), (ask(32, gpu=4), 10))
    placed(snapshot, selector, ask(8, gpu=1), 3)
    weights, slots = dict(selector._weights), np.arange(2)
    before = selector.score(ask(8, gpu=1), snapshot, slots).tolist()
    empty = snapshot.emptied()
    selector.arrived(ask(32, gpu=4), 100)  # so much that it would weigh anew
    assert selector.score(ask(8, gpu=1), empty, slots).tolist() != before
    with Statement(empty) as statement:
        assert len(fill(statement, selector, workload(ask(8, gpu=1)), 20)) == 10
    with Statement(snapshot, trial=True):
        assert selector.score(ask(8, gpu=1), snapshot, slots).tolist() == before
    assert selector._weights == weights
    selector.score(ask(8, gpu=1), snapshot, slots)
    assert selector._weights != weights


def test_shapes_are_weighed_by_what_is_free_though_a_trial_copy_is_asked_about_first() -> None:
    def weights(ask_first: bool) -> object:
        snapshot = cluster(a=box(cpu=64, gpus=8), b=box(cpu=16, gpus=2))
        snapshot.take(agent("a"), ask(8, gpu=7), tuple(DeviceShare(n, 1000) for n in range(7)))
        selector = that_has_seen((ask(8, gpu=1), 40), (ask(16, gpu=2), 10))
        empty = snapshot.emptied()
        if ask_first:  # as a pass does about what lacks room: would it fit if all were free?
            placed(empty, selector, ask(8, gpu=1))
        placed(snapshot, selector, ask(8, gpu=1))
        return selector._weights

    assert weights(ask_first=True) == weights(ask_first=False)


looks = st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), min_size=5, max_size=40)


@settings(max_examples=60, deadline=None)
@given(st.lists(machines, min_size=2, max_size=6), looks)
def test_looking_between_passes_changes_no_later_decision(
    boxes: list[Box], moments: list[tuple[int, bool]]
) -> None:
    def decisions(*, looks: bool) -> list[object]:
        snapshot = cluster(**{f"n{n}": machine for n, machine in enumerate(boxes)})
        chosen = policy(selector="fragmentation", queue="best_effort", preemption={})
        world, found = ClusterWorld(snapshot, chosen, longest_s=7), list[object]()
        selector = chosen.selector
        assert isinstance(selector, Fragmentation)
        for number, look in moments:
            request = SHAPES[number % len(SHAPES)]
            coming = session(f"{world.now}", request, at=world.now, priority=number % 3)
            selector.arrived(request, 1 + number % 60)
            if looks and look:
                explain(coming, world.state.queue, snapshot, chosen, world.context())
                with Statement(snapshot, trial=True) as statement:
                    fill(statement, selector, coming.workload, 3)
            world.end()
            world.arrive(coming)
            if number % 4:
                pieces = selector._prices.pieces.tolist()
                found.append((where(world.pass_()), selector._weights, pieces))
            if number % 9 == 0:
                put(snapshot, f"n{number % 8}", boxes[number % len(boxes)])
            world.now += 1
        return found

    assert decisions(looks=True) == decisions(looks=False)


steps = st.lists(
    st.tuples(
        st.sampled_from(["place"] * 6 + ["end"] * 3 + ["arrive"] * 3 + ["join", "leave", "force"]),
        st.integers(0, 10**6),
        machines,
    ),
    max_size=40,
)


@settings(max_examples=80, deadline=None)
@given(st.lists(machines, min_size=1, max_size=6), steps)
def test_what_is_remembered_is_what_is_found_from_scratch(
    boxes: list[Box], changes: list[tuple[str, int, Box]]
) -> None:
    snapshot = cluster(**{f"n{n}": machine for n, machine in enumerate(boxes)})
    selector, held = Fragmentation(half_life=500), []
    for kind, number, machine in changes:
        request = SHAPES[number % len(SHAPES)]
        match kind:
            case "arrive":
                selector.arrived(request, 1 + number % 40)
            case "place":
                found = taken(snapshot, selector, request, 1 + number % 3)
                held += [(kernel, request) for kernel in found]
            case "end" if held:
                kernel, its = held.pop(number % len(held))
                snapshot.give_back(kernel.agent_id, its, kernel.shares)
            case "join":
                put(snapshot, f"n{number % 8}", machine)
            case "leave":
                gone = agent(f"n{number % 8}")
                snapshot.remove_agent(gone)
                held = [each for each in held if each[0].agent_id != gone]
            case "force" if len(snapshot):
                name = snapshot.facts(int(np.flatnonzero(snapshot.columns.present)[0])).id
                share = DeviceShare(number % 7, 1000)  # perhaps of a device that nobody has
                snapshot.take(name, ask(number % 3, gpu=1), (share,), force=True)
        assert_as_from_scratch(selector, snapshot)


def assert_as_from_scratch(selector: Fragmentation, snapshot: Snapshot) -> None:
    columns = snapshot.columns
    for request in SHAPES:
        slots = columns.fitting(request)
        if not slots.size:
            continue
        scores = selector.score(request, snapshot, slots)
        fresh = WorthTable(columns, selector._prices)
        fresh.weigh(selector._weights)
        losses = fresh.losses(columns, request)[slots]
        assert np.allclose(scores, -losses, rtol=0, atol=1e-6)
        for slot, loss in zip(slots.tolist(), losses.tolist(), strict=True):
            assert loss == pytest.approx(loss_by_definition(selector, snapshot, request, slot))
            if 0 < request.gpu_milli < 1000:
                held = fresh.held_device(columns, request, slot)
                (share,) = selector.devices(request, snapshot, slot)
                assert (columns.device_free[slot][share.index] < 1000) == (held is not None)


def loss_by_definition(
    selector: Fragmentation, snapshot: Snapshot, request: Resources, slot: int
) -> float:
    """As the docstrings say it, in plain Python."""
    columns, prices = snapshot.columns, selector._prices
    capacity = int(columns.capacity[slot, 0])
    free = [max(left, 0) for left in columns.device_free[slot].tolist()]
    models = [columns.models[code] if code >= 0 else "" for code in columns.device_model[slot]]
    gpus, cpus = int(columns.device_count[slot]), int(columns.free[slot, 0])
    step = max(int(columns.capacity[:, 0].max()), 1024) / 1024

    def worth(cpus: int, devices: list[int]) -> float:
        pieces = sum(float(prices.pieces[left]) for left in devices)
        if not gpus or not capacity:
            return pieces
        share = capacity / gpus
        if prices.cpu_milli_per_gpu:
            share = min(share, prices.cpu_milli_per_gpu)
        return min(pieces, cpus / share * 1000)

    def use(cpus: int, devices: list[int]) -> float:
        whole = devices.count(1000)
        cpus = cpus if capacity else 1
        total = 0.0
        for shape, weight in selector._weights.items():
            allowed = any(not shape.models or model in shape.models for model in models if model)
            if not allowed or whole < shape.gpus:
                continue
            enough = shape.cpu_milli * whole / shape.gpus
            there = int(max(cpus, 0) / step) * step
            bend = -(-enough // step) * step
            total += weight * (whole if there >= bend else there * shape.gpus / shape.cpu_milli)
        return total * 1000

    def after() -> list[list[int]]:
        """The devices that could be left."""
        milli = request.gpu_milli
        mine = [n for n, model in enumerate(models) if model in (request.gpu_models or models)]
        if milli == 0:
            return [free]
        if milli >= 1000:
            chosen = [n for n in mine if free[n] == 1000][: milli // 1000]
            return [[0 if n in chosen else left for n, left in enumerate(free)]]
        fitting = [n for n in mine if free[n] >= milli]
        return [[left - milli * (n == each) for n, left in enumerate(free)] for each in fitting]

    cpus_after = cpus - request.cpu_milli
    return min(
        WORTH_FACTOR * (worth(cpus, free) - worth(cpus_after, left))
        + use(cpus, free)
        - use(cpus_after, left)
        for left in after()
    )


def test_the_same_history_gives_the_same_places() -> None:
    def run() -> list[str]:
        rng = random.Random(5)
        snapshot = cluster(**{f"n{n}": box(cpu=8, gpus=n % 5) for n in range(30)})
        selector, found = Fragmentation(seed=1), []
        for _ in range(300):
            request = rng.choice(SHAPES)
            selector.arrived(request, 1)
            found += placed(snapshot, selector, request)
        return found

    assert run() == run()


def test_pieces_are_priced_after_fifty_kernels_and_again_later() -> None:
    snapshot, selector = cluster(a=box(gpus=1)), Fragmentation()
    priced = []
    for kernels in range(1, 401):
        selector.arrived(ask(0, gpu=0.47), 1)
        before: Prices = selector._prices
        selector.score(ask(0, gpu=0.47), snapshot, np.array([0]))
        if selector._prices is not before:
            priced.append(kernels)
    assert priced == [50, 100, 200, 400]
    assert (selector._prices.pieces == piece_values({470: 1})).all()


def test_openb_leaves_less_stranded_than_the_published_best() -> None:
    folder = openb.found()
    if folder is None:
        pytest.skip(f"{openb.VARIABLE} names no folder with the openb trace")
    stranded = b4._stranded(folder, "default", "fragmentation", 42, {"fragmentation": []})
    assert stranded < b4.GOALS["default"]
