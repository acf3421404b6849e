"""Slices as data, and which of them are made and deleted."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaling.fleets import pool

from muster.autoscaling.pool_state import CeilingBudget, Ceilings, PoolState
from muster.autoscaling.slice_plan import SlicePlan, SliceState, plan_slices

NOW = 10_000.0


def slice_(
    name: str, idle_s: float | None = None, *, promised: int = 0, held_by: str | None = None
) -> SliceState:
    """A ready slice of pool a, in use unless it was idle for so long."""
    since = None if idle_s is None else NOW - idle_s
    busy = idle_s is None and not promised
    return SliceState(name, "a", since, busy, promised, held_by)


def planned(
    pool_: PoolState, *slices: SliceState, launches: int = 0, ceilings: Ceilings | None = None
) -> SlicePlan:
    budget = CeilingBudget("pool", ceilings or Ceilings(), [pool_])
    return plan_slices([pool_], slices, {"a": launches}, budget, NOW)


def stays(plan: SlicePlan) -> dict[str, str]:
    return {name: reason.sentence() for name, reason in plan.stays.items()}


def test_idle_slices_are_deleted_after_the_pools_time_the_longest_idle_first() -> None:
    plan = planned(
        pool("a", slices=3, idle_timeout=600), slice_("x", 700), slice_("y", 60), slice_("z", 900)
    )
    assert list(plan.delete) == ["z", "x"]
    assert stays(plan) == {"y": "idle for 1m00s; it is deleted in 9m00s"}
    assert plan.looks_at == NOW + 540


def test_each_slice_that_stays_says_why() -> None:
    plan = planned(
        pool("a", slices=5, min_slices=4),
        slice_("busy"),
        slice_("promised", promised=2),
        slice_("held", 9999, held_by="ann"),
        slice_("old", 9999),
        slice_("older", 99999),
    )
    assert list(plan.delete) == ["older"]
    assert stays(plan) == {
        "busy": "work runs on it",
        "promised": "it is promised to 2 waiting sessions",
        "held": "ann holds it",
        "old": "pool a has 4 slices, and keeps at least 4",
    }


def test_buffer_is_kept_beside_what_is_in_use_and_filled_up() -> None:
    buffered = pool("a", slices=2, buffer_slices=2)
    assert planned(buffered, slice_("x"), slice_("y", 9999)).launch == {"a": 1}
    plan = planned(
        pool("a", slices=3, buffer_slices=2), slice_("x", 1), slice_("y", 9999), slice_("z", 999)
    )
    assert list(plan.delete) == ["y"]
    assert stays(plan)["z"] == "pool a keeps 2 idle slices ready for the next demand"


def test_slices_for_demand_count_toward_the_least_number() -> None:
    assert planned(pool("a", min_slices=3), launches=2).launch == {"a": 3}
    assert planned(pool("a", min_slices=3), launches=5).launch == {"a": 5}


@pytest.mark.parametrize(
    ("limits", "launch"), [({"max_slices": 2}, 2), ({"at_once": 1}, 1), ({"slices": 9}, 1)]
)
def test_no_more_are_made_than_the_pool_may_have(limits: dict[str, Any], launch: int) -> None:
    wants_two = pool("a", buffer_slices=2, min_slices=2, **limits)
    assert planned(wants_two).launch == {"a": launch}


def test_no_more_are_made_than_the_group_may_have() -> None:
    five = pool("a", min_slices=5)
    assert planned(five, ceilings=Ceilings(machines=3)).launch == {"a": 3}


def test_idle_slice_is_not_deleted_where_another_of_its_pool_is_made() -> None:
    plan = planned(pool("a", slices=1, min_slices=2), slice_("x", 9999), launches=0)
    assert (plan.launch, plan.delete) == ({"a": 1}, {})


_times = st.one_of(st.none(), st.integers(0, 1200))


@st.composite
def pools_with_slices(draw: st.DrawFn) -> tuple[PoolState, list[SliceState]]:
    most = draw(st.integers(0, 6))
    slices = [
        slice_(str(number), draw(_times), held_by=draw(st.sampled_from([None, None, "ann"])))
        for number in range(draw(st.integers(0, 6)))
    ]
    state = pool(
        "a",
        slices=len(slices) + draw(st.integers(0, 1)),
        max_slices=most,
        min_slices=draw(st.integers(0, most)),
        buffer_slices=draw(st.integers(0, most)),
    )
    return state, slices


@given(pools_with_slices(), _times.filter(bool))
def test_nothing_is_made_and_deleted_in_turn(
    case: tuple[PoolState, list[SliceState]], later_s: float
) -> None:
    state, slices = case
    plan = planned(state, *slices)
    assert not (plan.launch and plan.delete)
    left: Sequence[SliceState] = [each for each in slices if each.id not in plan.delete]
    made = [slice_(f"new{number}", 0) for number in range(plan.launch.get("a", 0))]
    after = pool(
        "a",
        slices=len(left) + len(made),
        max_slices=state.spec.max_slices,
        min_slices=state.spec.min_slices,
        buffer_slices=state.spec.buffer_slices,
    )
    again = planned(after, *left, *made)
    assert not again.delete
    if plan.delete:
        assert not again.launch
    assert Counter([*plan.delete, *plan.stays]) == Counter(each.id for each in slices)
