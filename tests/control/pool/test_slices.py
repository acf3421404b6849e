"""Slices from the wish until they are gone, with hollow machines under virtual time."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from proving.hollow.performers.providers import FarmFaults
from tests.control.pool.pooled import make, only
from tests.control.pool_scenarios import job, pool
from tests.control.world import World

from muster.control.pool.autoscaler import RouteDemand
from muster.control.pool.effects import MAX_CALLS, LogRead
from muster.control.pool.explanation import explain_slice
from muster.control.pool.fleet import Fleet
from muster.control.pool.records import Slice
from muster.control.pool.slices import WORDS_S
from muster.control.pool.views import live_slice
from muster.control.session.cluster.machine_holds import MachineHolds
from muster.core.states import JobState
from muster.core.states.slice import SliceStatus
from muster.providers.provider import MachineListing


def status(slice_: Slice) -> SliceStatus:
    """The status as it is now."""
    return slice_.status


def test_a_job_makes_a_slice_runs_and_the_slice_goes(tmp_path: Path) -> None:
    world = World(tmp_path, {})
    world.apply(pool())
    world.run(1)
    submitted = world.submit(job("one"))
    (made,) = world.slices()
    assert status(made) is SliceStatus.BOOTING
    world.run_until(lambda: submitted.status is JobState.SUCCEEDED)
    assert made.ready_at is not None
    world.run_until(lambda: not world.slices(), 120)
    assert status(made) is SliceStatus.TERMINATED
    assert not world.farm.machines
    assert not world.plane.live.agents
    world.close()


def test_ten_jobs_of_one_machine_make_no_more_than_the_pool_may_have(tmp_path: Path) -> None:
    world = World(tmp_path, {})
    world.apply(pool(max_slices=3))
    jobs = [world.submit(job(f"j{number}")) for number in range(10)]
    world.run(1)
    assert len(world.slices()) == 3
    world.run_until(lambda: all(each.status is JobState.SUCCEEDED for each in jobs))
    assert len(world.farm.made) == 3
    world.run_until(lambda: not world.slices(), 200)
    assert not world.farm.machines
    world.close()


def failed(world: World) -> str:
    """Why the only slice failed, once it has."""
    slice_ = only(world)
    world.run_until(lambda: slice_.failed)
    assert slice_.doomed is not None
    return slice_.doomed.sentence()


def test_no_more_slices_are_asked_about_than_calls_are_made_side_by_side(tmp_path: Path) -> None:
    world = make(tmp_path)
    world.farm.faults = FarmFaults(mute=1.0)
    world.apply(pool(min_slices=2 * MAX_CALLS, max_slices=20))
    world.run(5)
    assert len(world.slices()) == 2 * MAX_CALLS
    assert sum(each.handed_at is not None for each in world.slices()) == MAX_CALLS
    world.farm.faults = FarmFaults()
    world.run(300)
    assert not [each for each in world.slices() if each.status is SliceStatus.REQUESTING]
    world.close()


def test_a_slice_that_does_not_boot_is_told_with_the_last_words_of_its_machine(
    tmp_path: Path,
) -> None:
    world = make(tmp_path, boot_timeout=60)
    world.farm.faults = FarmFaults(never_boots=1.0)
    world.apply(pool(min_slices=1, boot_timeout=60))
    world.run(1)
    machine = only(world).names[0]
    began = world.clock.now()
    assert failed(world) == f"0 of its 1 machine joined within 1m00s; {machine}: boots for ever"
    assert world.clock.now() < began + 60 + WORDS_S, "nothing was waited for"
    world.close()


def test_last_words_of_one_machine_are_not_told_of_another(tmp_path: Path) -> None:
    world = make(tmp_path)
    world.farm.faults = FarmFaults(never_boots=1.0)
    world.apply(pool(min_slices=1, slice_size=2, boot_timeout=60))
    world.run(50)
    slice_ = only(world)
    world.farm.faults = FarmFaults(lost=1.0)
    world.run_until(lambda: slice_.asked_words is not None)
    words = LogRead(slice_.id, slice_.names[1], "boots for ever")
    world.ask(words.take)
    assert failed(world) == "0 of its 2 machines joined within 1m00s"
    world.close()


def test_last_words_that_do_not_come_are_those_of_the_last_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make(tmp_path)
    world.farm.faults = FarmFaults(never_boots=1.0)
    listed: Callable[[str], MachineListing] = world.farm.list

    def with_details(name: str) -> MachineListing:
        machines = listed(name).machines
        return MachineListing(tuple(replace(each, detail="no such image") for each in machines))

    monkeypatch.setattr(world.farm, "list", with_details)
    world.apply(pool(min_slices=1, boot_timeout=60))
    world.run(50)
    slice_ = only(world)
    words = f"its machine {slice_.names[0]} has not joined: no such image"
    fleet, routing = world.plane.parts[Fleet], world.plane.parts[RouteDemand]
    shown = live_slice(slice_, fleet, fleet.pool("cpu"), world.clock.now()).reason
    assert shown is not None
    assert shown.sentence == words, "it is told before the time limit"
    pool_, now = fleet.pool("cpu"), world.clock.now()
    why = explain_slice(slice_, pool_, fleet, routing, lambda *_: (), MachineHolds(), now)
    assert words in [each.sentence for each in why.reasons]
    world.farm.faults = FarmFaults(lost=1.0)
    began = world.clock.now()
    assert failed(world).endswith(": no such image")
    assert world.clock.now() >= began + WORDS_S
    world.close()
