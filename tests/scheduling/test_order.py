"""An order finds what a look at every agent finds, through any series of changes."""

import random
from itertools import product

import numpy as np
import pytest
from tests.scheduling.clusters import agent, ask, box, cluster, put

from muster.core.ids import AgentId
from muster.core.resources import DeviceShare, Resources
from muster.scheduling.cluster import order
from muster.scheduling.cluster.columns import Bulk, Shares
from muster.scheduling.cluster.order import Ranking, Tier
from muster.scheduling.cluster.packing import MARKS, OPEN, PLAIN, WANTED, Packing
from muster.scheduling.cluster.snapshot import Snapshot

SHARES = [0.02, 0.1, 0.3, 0.3, 0.3, 0.5, 0.5, 0.7, 0.7, 0.8, 0.9, 0.95]  # more than have marks
REQUESTS = [ask(1), ask(3, 2), ask(0, gpu=0.3), ask(1, gpu=1), ask(0, gpu=2), ask(2, licence=1)]


@pytest.fixture(autouse=True, params=[0, 100], ids=["kept in order", "few in all"])
def _small_blocks(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(order, "_FEW_IN_ALL", request.param)
    monkeypatch.setattr(order, "_BLOCK", 6)
    monkeypatch.setattr(order, "_FILLED", 4)
    monkeypatch.setattr(order, "_SPARE", 3)
    monkeypatch.setattr(order, "_WINDOW", 3)
    monkeypatch.setattr(order, "_FEW", 4)
    monkeypatch.setattr(order, "_OFTEN", 3)
    monkeypatch.setattr(order, "_LONG", 9)


def best(snapshot: Snapshot, ranking: Ranking, slots: list[int]) -> int | None:
    columns = snapshot.columns

    def key(slot: int) -> tuple[float, ...]:
        utilisation, size = columns.utilisation[slot], columns.size[slot]
        match ranking:
            case Ranking.FULLEST:
                return -utilisation, size, slot
            case Ranking.EMPTIEST:
                return utilisation, -size, slot
            case Ranking.ROUND_ROBIN:
                return ((slot - snapshot.next_slot) % columns.slots,)

    return min(slots, key=key, default=None)


@pytest.fixture
def busy() -> Snapshot:
    machines = {f"n{n}": box(4 + n % 3, 8, gpus=n % 4, licence=n % 2) for n in range(60)}
    return cluster(**machines)


def cpus(snapshot: Snapshot, *slots: int) -> Bulk:
    """One CPU in each of the slots."""
    nothing = np.empty(0, np.int64)
    amounts = np.zeros((len(snapshot.columns.dimensions), len(slots)), np.int64)
    amounts[0] = 1000
    return Bulk(np.array(slots, np.int64), amounts, nothing, nothing, nothing)


def test_small_group_knows_the_slots_in_which_room_was_taken_together() -> None:
    snapshot = cluster(a=box(4, 8), b=box(4, 8), c=box(4, 8))
    columns, order_ = snapshot.columns, snapshot.order(Ranking.FULLEST)
    need = columns.need(ask(3))
    assert need is not None
    assert order_.first(need, Tier(), (), 0, plain=False) == 0
    mark = columns.changes_mark
    columns.move_all(cpus(snapshot), -1)
    assert columns.changes_mark == mark
    columns.move_all(cpus(snapshot, 0, 0, 2), -1)
    assert {*(columns.changed_since(mark) or ())} == {0, 2}
    assert order_.first(need, Tier(), (), 0, plain=False) == 2
    columns.move_all(cpus(snapshot, 0, 0, 2))
    assert order_.first(need, Tier(), (), 0, plain=False) == 0


@pytest.mark.parametrize("count", [2, 40])
def test_room_that_moves_together_is_as_if_each_amount_moved_by_itself(
    busy: Snapshot, count: int
) -> None:
    slots = [slot for slot in range(60) if slot % 4][:count]
    bulk, one_by_one = cpus(busy, *slots, slots[0]), busy.columns.copy()
    shared = [np.array(each, np.int64) for each in (slots, [0] * count, [300] * count)]
    columns, bulk = busy.columns, Bulk(bulk.slots, bulk.amounts, *shared)
    for copies in (-1, -1, 1):
        columns.move_all(bulk, copies)
        for slot in slots:
            one_by_one.move(slot, ask(1), (DeviceShare(0, 300),), copies)
        one_by_one.move(slots[0], ask(1), (), copies)
        assert (columns.free == one_by_one.free).all()
        assert (columns.device_free == one_by_one.device_free).all()
        measured = [columns.measure(slot) for slot in range(60)]
        assert measured == [one_by_one.measure(slot) for slot in range(60)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ranking", Ranking)
def test_first_is_the_best_of_all_that_fit(busy: Snapshot, ranking: Ranking, seed: int) -> None:
    rng = random.Random(seed)
    columns = busy.columns
    masks = [np.array([rng.random() < share for _ in range(60)]) for share in SHARES]
    tiers = [Tier(), *map(Tier, masks)]
    held: list[tuple[AgentId, Resources, Shares]] = []
    for step in range(400):
        slot = rng.randrange(60) if step % 3 else rng.randrange(5)
        name = agent(f"n{slot}")
        if held and rng.random() < 0.4:
            busy.give_back(*held.pop(rng.randrange(len(held))))
        else:
            shares: Shares = ()
            if columns.device_count[slot] and rng.random() < 0.5:
                shares = (DeviceShare(0, rng.choice([100, 300, 1000])),)
            amount = ask(rng.choice([0.001, 0.5, 1, 2]), rng.choice([0, 1]))
            busy.take(name, amount, shares, force=True)
            held.append((name, amount, shares))
        if step % 97 == 0:
            put(busy, f"n{rng.randrange(60)}", box(7, 8, gpus=2, licence=1))
        busy.next_slot = rng.randrange(61)
        request = rng.choice(REQUESTS)
        need = columns.need(request)
        assert need is not None
        tier = rng.choice(tiers)
        plain = rng.random() < 0.2
        full = {rng.randrange(60)} if rng.random() < 0.3 else set()
        fitting = [
            slot
            for slot in columns.fitting(request).tolist()
            if (tier.mask is None or tier.mask[slot])
            and slot not in full
            and not (plain and columns.device_count[slot])
        ]
        found = busy.order(ranking).first(need, tier, full, busy.next_slot, plain=plain)
        assert found == best(busy, ranking, fitting)


@pytest.mark.parametrize("ranking", [Ranking.FULLEST, Ranking.EMPTIEST])
def test_best_are_those_that_first_would_find(busy: Snapshot, ranking: Ranking) -> None:
    for slot in range(60):
        busy.take(agent(f"n{slot}"), ask(slot * 7 % 4))
    slots = busy.columns.fitting(ask(0))
    expected = []
    left = slots.tolist()
    while left:
        found = best(busy, ranking, left)
        assert found is not None
        expected.append(found)
        left.remove(found)
    for count in (1, 7, 60, 100):
        assert busy.order(ranking).best(slots, count, 0).tolist() == expected[:count]


def test_turn_goes_round() -> None:
    snapshot = cluster(a=box(), b=box(status="LOST"), c=box(), d=box())
    slots = snapshot.columns.fitting(ask(1))
    turns = snapshot.order(Ranking.ROUND_ROBIN)
    assert [turns.best(slots, 9, next_slot).tolist() for next_slot in range(5)] == [
        [0, 2, 3],
        [2, 3, 0],
        [2, 3, 0],
        [3, 0, 2],
        [0, 2, 3],
    ]


# Words


def word(packing: Packing, *free: int, whole: int = 0, largest: int = 0, plain: bool = True) -> int:
    packed = packing.devices(whole, largest, plain=plain)
    for amount, shift, position in zip(free, packing.shifts, packing.positions, strict=False):
        packed |= amount >> shift << position
    return packed


def passes(agent: int, request: int) -> bool:
    return (agent - request) % 2**64 & WANTED == WANTED


def test_word_never_leaves_out_an_agent_that_has_room() -> None:
    rng = random.Random(5)
    packing = Packing()
    packing.make_room([128_000, 2**40, 2**45, 7, 3000])
    for _ in range(3000):
        most = [128_000, 2**40, 2**45, 7, 3000, 10**9]
        free = [rng.choice([0, m, rng.randrange(m + 1)]) for m in most]
        asked = [
            (row, rng.choice([0, left, left + 1, rng.randrange(most[row] + 1)]))
            for row, left in enumerate(free)
            if rng.random() < 0.7
        ]
        whole, largest = rng.randrange(200), rng.choice([0, 300, 999, 1000])
        devices, milli = rng.choice(
            [(0, 0), (1, rng.randrange(1, 1000)), (rng.randrange(1, 200), 1000)]
        )
        request = packing.request(asked, devices, milli)
        fits = all(free[row] >= amount for row, amount in asked) and (
            whole >= devices if milli == 1000 else largest >= milli
        )
        if fits:
            assert passes(word(packing, *free, whole=whole, largest=largest), request)


def test_word_tells_apart_what_differs_by_more_than_a_step() -> None:
    packing = Packing()
    packing.make_room([128_000, 2**40, 0, 8000])
    agent = word(packing, 64_000, 2**30, 0, 4000, whole=2, largest=1000, plain=False)
    assert passes(agent, packing.request([(0, 64_000), (1, 2**30)], 2, 1000))
    for asked, devices, milli in [
        ([(0, 65_000)], 0, 0),
        ([(1, 2**31)], 0, 0),
        ([(3, 4500)], 0, 0),
        ([], 3, 1000),
    ]:
        assert not passes(agent, packing.request(asked, devices, milli))


def test_closed_agent_meets_no_request_not_even_one_for_nothing() -> None:
    packing = Packing()
    packing.make_room([128_000, 2**40])
    for asked in ([], [(0, 128_000)], [(0, 1), (1, 2**40)]):
        assert not passes(0, packing.request(asked, 127, 1000))
        assert not passes(0, packing.request(asked, 0, 0))


def test_marks_stay_as_they_are_whatever_is_asked_for() -> None:
    packing = Packing()
    packing.make_room([128_000, 2**40])
    for free, asked in product([[0, 0], [5, 2**40]], [[], [(0, 128_000)], [(1, 2**40)]]):
        request = packing.request(asked, 60, 1000)
        for marks in range(1 << MARKS):
            left = (word(packing, *free) | marks) - request
            assert left & PLAIN
            assert left & (OPEN - 1) == marks


def test_tiers_that_are_asked_for_often_are_marked_until_others_are(busy: Snapshot) -> None:
    ordered = busy.order(Ranking.FULLEST)
    need = busy.columns.need(ask(1))
    assert need is not None
    tiers = [Tier(np.arange(60) % 7 == number % 7) for number in range(20)]
    for _ in range(4):
        for number, tier in enumerate(tiers):
            found = ordered.first(need, tier, (), 0, plain=False)
            assert found is not None
            assert found % 7 == number % 7
