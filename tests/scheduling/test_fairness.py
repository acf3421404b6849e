"""Recent usage is the integral of the resources held, each half-life counting for half."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import ANN, BOB, GIB, agent, ask, box, cluster, put

from muster.core.owner import Owner
from muster.core.specs import Level
from muster.scheduling.accounting.fairness import Capacity, DecayedUsage, UsageSpan, dominant_share
from muster.scheduling.accounting.usage import Scope, scopes
from muster.scheduling.cluster.snapshot import NotHeld

CAT = Owner("default", "sales", "cat")
USER, PROJECT, DOMAIN = scopes(ANN)
HALF_LIFE_S = 100.0


def decayed() -> DecayedUsage:
    return DecayedUsage(HALF_LIFE_S)


# Dominant shares


@pytest.mark.parametrize(
    ("amounts", "share"),
    [
        ({}, 0),
        ({"cpu": 3, "memory": 12}, 12 / 18),
        ({"cpu": 9, "memory": 1}, 1),
        ({"cpu": 18}, 2),  # also held in other groups
        ({"licence": 5, "cpu": 3}, 3 / 9),  # the group has none of it
        ({"gpu": 5}, 0),
    ],
)
def test_dominant_share_is_the_largest_part_of_a_resource(
    amounts: dict[str, int], share: float
) -> None:
    assert dominant_share(amounts, {"cpu": 9, "memory": 18, "gpu": 0}) == share


def test_capacity_is_that_of_all_agents_whatever_is_held_of_them() -> None:
    snapshot = cluster(a=box(cpu=4, gib=16, gpus=2), b=box(cpu=2, gib=8, gpus=1, status="LOST"))
    capacity = Capacity()
    everything = {"cpu": 6000, "memory": 24 * GIB, "disk": 0, "gpu": 3000}
    assert capacity.of(snapshot) == everything
    snapshot.take(agent("a"), ask(3))
    assert capacity.of(snapshot) == everything


def test_number_of_kernels_that_agents_may_hold_is_no_share() -> None:
    machine = box(cpu=4)
    few = replace(machine, capacity=replace(machine.capacity, kernels=2))
    capacity = Capacity().of(cluster(a=few))
    assert dominant_share(replace(ask(1), kernels=2).as_dict(), capacity) == 1 / 4


def test_capacity_follows_agents_that_come_and_leave() -> None:
    snapshot, other = cluster(a=box(cpu=4)), cluster(a=box(cpu=1))
    capacity = Capacity()
    seen = [capacity.of(other)["cpu"], capacity.of(snapshot)["cpu"]]
    put(snapshot, "b", box(cpu=2, licence=3))
    seen += [capacity.of(snapshot)["cpu"], capacity.of(snapshot)["licence"]]
    snapshot.remove_agent(agent("a"))
    seen += [capacity.of(snapshot)["cpu"], capacity.of(other)["cpu"]]
    assert seen == [1000, 4000, 6000, 3000, 2000, 1000]


# Decay


def test_nothing_is_used_by_whom_nobody_knows() -> None:
    assert decayed().used(USER, 5) == {}


def test_what_was_used_halves_with_each_half_life() -> None:
    usage = decayed()
    usage.placed(ANN, {"cpu": 1000}, at=0)
    usage.released(ANN, {"cpu": 1000}, at=10)
    then = usage.used(USER, 10)["cpu"]
    assert then == pytest.approx(10_000, rel=0.05)  # so short that little has decayed
    for halvings in range(1, 5):
        now = 10 + halvings * HALF_LIFE_S
        assert usage.used(USER, now)["cpu"] == pytest.approx(then / 2**halvings)


def test_what_is_held_for_ever_comes_to_the_mean_life() -> None:
    usage = decayed()
    usage.placed(ANN, {"gpu": 2000}, at=0)
    assert usage.used(USER, HALF_LIFE_S)["gpu"] == pytest.approx(2000 * usage.mean_life_s / 2)
    assert usage.used(USER, 1e6)["gpu"] == pytest.approx(2000 * usage.mean_life_s)


def test_each_level_has_what_its_members_have_together() -> None:
    usage = decayed()
    usage.placed(ANN, {"cpu": 1000}, at=0)
    usage.placed(BOB, {"cpu": 2000, "gpu": 500}, at=0)
    usage.placed(CAT, {"cpu": 4000}, at=0)
    second = usage.used(USER, 1)["cpu"]
    assert usage.used(PROJECT, 1) == pytest.approx({"cpu": second * 3, "gpu": second / 2})
    assert usage.used(DOMAIN, 1) == pytest.approx({"cpu": second * 7, "gpu": second / 2})


def test_report_that_comes_late_counts_from_its_own_time() -> None:
    late, prompt = decayed(), decayed()
    late.placed(BOB, {"cpu": 500}, at=50)
    assert late.used(PROJECT, 80)["cpu"] < 500 * 30  # and will have been more
    late.placed(ANN, {"cpu": 1000}, at=10)
    late.released(ANN, {"cpu": 1000}, at=30)
    prompt.placed(ANN, {"cpu": 1000}, at=10)
    prompt.released(ANN, {"cpu": 1000}, at=30)
    prompt.placed(BOB, {"cpu": 500}, at=50)
    for scope in (USER, PROJECT, DOMAIN):
        assert late.used(scope, 80) == pytest.approx(prompt.used(scope, 80))


def test_asking_changes_no_later_answer() -> None:
    asked, quiet = decayed(), decayed()
    for usage in (asked, quiet):
        usage.placed(ANN, {"cpu": 1000}, at=0)
    for now in range(200):
        asked.used(USER, now / 3)
    assert asked.used(USER, 99) == quiet.used(USER, 99)


def test_stay_of_long_ago_counts_for_nothing_more() -> None:
    usage = decayed()
    usage.placed(ANN, {"cpu": 1000}, at=1e9)
    usage.ran(ANN, {"cpu": 9000}, started_at=0, ended_at=1e6)
    assert usage.used(USER, 1e9 + HALF_LIFE_S)["cpu"] == pytest.approx(500 * usage.mean_life_s)


def test_before_the_last_change_it_is_as_at_that_change() -> None:
    usage = decayed()
    usage.placed(ANN, {"cpu": 1000}, at=0)
    usage.released(ANN, {"cpu": 1000}, at=200)
    assert usage.used(USER, 150) == usage.used(USER, 200)


def test_clock_set_back_makes_nothing_less_than_nothing() -> None:
    usage = decayed()
    usage.placed(ANN, {"cpu": 1000}, at=3600)
    usage.released(ANN, {"cpu": 1000}, at=10)
    assert usage.used(USER, 20) == {"cpu": 0}
    assert usage.used(USER, 4000) == {"cpu": 0}


def test_stay_that_ended_before_it_began_is_none() -> None:
    usage = decayed()
    usage.ran(ANN, {"cpu": 1000}, started_at=0, ended_at=40)
    before = usage.used(USER, 60)
    usage.ran(ANN, {"cpu": 1000}, started_at=50, ended_at=40)
    assert usage.used(USER, 60) == before


@pytest.mark.parametrize("amounts", [{"cpu": 1001}, {"cpu": 1, "gpu": 1}])
def test_more_than_is_held_cannot_be_released(amounts: dict[str, int]) -> None:
    usage = decayed()
    usage.placed(ANN, {"cpu": 1000}, at=0)
    usage.placed(BOB, {"cpu": 9000, "gpu": 8000}, at=0)
    with pytest.raises(NotHeld, match="default/research/ann holds"):
        usage.released(ANN, amounts, at=5)
    with pytest.raises(NotHeld, match="default/sales/cat holds"):
        usage.released(CAT, amounts, at=5)
    assert usage.used(USER, HALF_LIFE_S) == pytest.approx({"cpu": 500 * usage.mean_life_s})


# Against the integral

moments = st.integers(0, 1000)
spans = st.builds(
    lambda owner, amounts, start, length: UsageSpan(
        owner, amounts, start, None if length is None else start + length
    ),
    st.sampled_from([ANN, BOB, CAT]),
    st.dictionaries(st.sampled_from(["cpu", "gpu"]), st.integers(10**9, 10**10)),
    moments,
    st.none() | st.integers(0, 500),
)


def integral(past: list[UsageSpan], scope: Scope, now: float) -> dict[str, float]:
    """Each stay by itself, as it is written down in the books."""
    rate = math.log(2) / HALF_LIFE_S
    sums: dict[str, float] = {}
    for span in past:
        if scope in scopes(span.owner):
            end = now if span.ended_at is None else span.ended_at
            for name, amount in span.amounts.items():
                weighed = 2 ** (-(now - end) / HALF_LIFE_S) - 2 ** (
                    -(now - span.started_at) / HALF_LIFE_S
                )
                sums[name] = sums.get(name, 0) + amount * weighed / rate
    return sums


def test_integral_that_the_rest_is_compared_with_is_one() -> None:
    """Added up in steps of a hundredth of a second."""
    past = [UsageSpan(ANN, {"cpu": 3}, 10, 60), UsageSpan(ANN, {"cpu": 5}, 40)]
    steps = [step / 100 + 0.005 for step in range(10_000)]
    by_hand = sum(
        (3 * (10 <= t < 60) + 5 * (t >= 40)) * 2 ** (-(100 - t) / HALF_LIFE_S) / 100 for t in steps
    )
    assert integral(past, USER, 100)["cpu"] == pytest.approx(by_hand, rel=1e-6)


@settings(deadline=None)
@given(past=st.lists(spans, max_size=12), order=st.permutations(range(12)), later=moments)
def test_decayed_usage_is_the_integral_in_whatever_order_it_is_told(
    past: list[UsageSpan], order: list[int], later: int
) -> None:
    starts = [(span.started_at, "placed", span) for span in past]
    ends = [(span.ended_at, "released", span) for span in past if span.ended_at is not None]
    shuffled = [past[index] for index in order if index < len(past)]

    as_it_happened = decayed()
    for at, change, span in sorted(starts + ends, key=lambda told: told[:2]):
        getattr(as_it_happened, change)(span.owner, span.amounts, at)
    starts_first = decayed()
    for at, change, span in starts + ends:
        getattr(starts_first, change)(span.owner, span.amounts, at)
    from_books = DecayedUsage.of_past(shuffled, HALF_LIFE_S)

    now = 1500 + later
    for scope in {scope for span in past for scope in scopes(span.owner)}:
        expected = integral(past, scope, now)
        for usage in (as_it_happened, starts_first, from_books):
            used = {**dict.fromkeys(expected, 0.0), **usage.used(scope, now)}
            # What rounding leaves: a part in 10^11 of the most that could have been used.
            assert used == pytest.approx(expected, rel=1e-9, abs=100)


def test_level_is_part_of_a_scope() -> None:
    usage = decayed()
    usage.placed(Owner("a", "b", "c"), {"cpu": 1000}, at=0)
    assert usage.used((Level.PROJECT, "a"), 10) == {}
