"""Silent machines of slices: people are told which, since when, and what becomes of the slice."""

from pathlib import Path

import pytest
from tests.control.pool.pooled import make, pool_status
from tests.control.world import World

from muster.control.pool.autoscaler import RouteDemand
from muster.control.pool.explanation import explain_slice
from muster.control.pool.fleet import Fleet
from muster.control.pool.records import Slice
from muster.control.pool.states import PoolStatus
from muster.control.pool.views import live_slice
from muster.control.session.cluster.machine_holds import MachineHolds
from muster.core.reasons import ReasonCode
from muster.core.states.slice import SliceStatus
from muster.core.views.pools import SliceView


def ready(path: Path, slices: int) -> World:
    """A world with slices of two machines each."""
    world = make(path, min_slices=slices, max_slices=slices + 1, slice_size=2, idle_timeout=10)
    there = [SliceStatus.READY] * slices
    world.run_until(lambda: [each.status for each in world.slices()] == there)
    return world


def seen(world: World, slice_: Slice) -> SliceView:
    fleet = world.plane.parts[Fleet]
    return live_slice(slice_, fleet, fleet.pool(slice_.pool), world.clock.now())


def is_to_stay(slice_: Slice) -> bool:
    return slice_.doomed is None


def silence_of(world: World, slice_: Slice) -> str:
    told = seen(world, slice_).silent
    return "" if told is None else told.sentence


def test_silent_machine_is_named_with_the_time_until_its_slice_is_replaced(tmp_path: Path) -> None:
    world = ready(tmp_path, 3)
    slice_, other, *_ = world.slices()
    name = slice_.names[1]
    assert silence_of(world, slice_) == ""
    since = world.clock.now()
    world.disconnect(world.agent(name))
    world.run_until(lambda: bool(silence_of(world, slice_)), 60)
    view = seen(world, slice_)
    assert view.silent is not None
    assert [each.silent_since is not None for each in view.machines] == [False, True]
    assert view.machines[1].silent_since == pytest.approx(since, abs=5)
    in_s = int(view.silent.numbers["in_s"] or 0)
    assert view.silent.sentence.startswith(f"its machine {name} has been silent for 1")
    assert view.silent.sentence.endswith("unless it is heard again")
    assert silence_of(world, other) == ""
    fleet, routing = world.plane.parts[Fleet], world.plane.parts[RouteDemand]
    pool_, now = fleet.pool("cpu"), world.clock.now()
    why = explain_slice(slice_, pool_, fleet, routing, lambda *_: (), MachineHolds(), now)
    assert why.reasons[0].code == ReasonCode.SLICE_SILENT
    world.run(in_s - 20)
    assert is_to_stay(slice_)
    world.run(40)
    assert not is_to_stay(slice_), "it was replaced when it was said to be"
    assert silence_of(world, slice_) == ""
    world.close()


def test_machine_that_its_provider_lists_no_more_is_told_so(tmp_path: Path) -> None:
    world = ready(tmp_path, 3)
    world.run(300)  # all were listed
    slice_ = world.slices()[0]
    (first, _) = world.farm.of(slice_.id)
    world.disconnect(world.agent(first.name))
    del world.farm.machines[first.id]
    world.run_until(lambda: slice_.missing == 1 and bool(silence_of(world, slice_)), 100)
    assert "if the next list of its provider lacks the machine, too" in silence_of(world, slice_)
    world.run_until(lambda: not is_to_stay(slice_), 100)
    world.close()


def test_breaker_is_told_where_it_keeps_a_slice(tmp_path: Path) -> None:
    world = ready(tmp_path, 3)
    slice_ = world.slices()[0]
    for name in slice_.names:
        world.disconnect(world.agent(name))
    world.run_until(lambda: pool_status(world) is PoolStatus.TRIPPED, 60)
    said = silence_of(world, slice_)
    assert ", and so have been 1 more: nothing is replaced while pool cpu stands still" in said
    world.close()
