"""Pools among outcomes, silences, losses and operators, with hollow machines under virtual time."""

from pathlib import Path

import pytest
from proving.hollow.performers.providers import FarmFaults
from proving.hollow.supervisor import Run
from sqlalchemy import text
from tests.control.pool.pooled import codes, make, only, pool_of, pool_status
from tests.control.pool_scenarios import job, pool
from tests.control.world import ROOT, World

from muster.autoscaling.standing import CreateOutcome
from muster.control.inbox import NotStored
from muster.control.pool.fleet import Fleet
from muster.control.pool.records import Pool, SliceId
from muster.control.pool.requests import PoolRequests
from muster.control.pool.slices import SliceLifecycle
from muster.control.pool.states import PoolStatus
from muster.core.errors import Conflict, InvalidSpec
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_machines import SliceMachineGone
from muster.core.states import AgentStatus, JobState
from muster.core.states.slice import SliceStatus
from muster.providers.provider import MachineState
from muster.store.store import CommitFailed
from muster.store.unit import Unit


@pytest.mark.parametrize("fault", ["mute", "lost", "doubled"])
def test_a_lost_answer_makes_no_second_machine(tmp_path: Path, fault: str) -> None:
    world = make(tmp_path)
    world.farm.faults = FarmFaults(**{fault: 0.5})
    submitted = world.submit(job("one"))
    world.run_until(lambda: submitted.status is JobState.SUCCEEDED, 2000)
    assert set(world.farm.made.values()) == {1}
    world.farm.faults = FarmFaults()
    world.run_until(lambda: not world.slices(), 2000)
    assert not world.farm.machines
    world.close()


STATES = [SliceStatus.REQUESTING, SliceStatus.BOOTING, SliceStatus.INITIALIZING, SliceStatus.READY]


@pytest.mark.parametrize("status", STATES)
def test_a_controller_killed_in_any_state_makes_nothing_twice(
    tmp_path: Path, status: SliceStatus
) -> None:
    world = make(tmp_path, slice_size=2, join_timeout=300)
    world.farm.faults = FarmFaults(late_s=1.0)
    world.submit(job("one", tasks=2))
    if status is SliceStatus.INITIALIZING:
        world.run_until(lambda: only(world).status is SliceStatus.BOOTING)
        first, second = world.farm.of(only(world).id)
        second.boots_at += 100
        assert first.boots_at < second.boots_at
    world.run_until(lambda: only(world).status is status)
    world.restart_controller()
    world.run_until(lambda: not world.plane.live.jobs)
    assert list(world.farm.made.values()) == [1]
    world.run_until(lambda: not world.slices(), 2000)
    assert not world.farm.machines
    assert not world.plane.live.agents
    world.close()


def test_a_controller_killed_while_deleting_deletes_it(tmp_path: Path) -> None:
    world = make(tmp_path)
    world.submit(job("one"))
    world.run_until(lambda: only(world).status is SliceStatus.READY)
    world.farm.faults = FarmFaults(lost=1.0)
    world.run_until(lambda: only(world).doomed is not None, 500)
    world.restart_controller()
    world.farm.faults = FarmFaults()
    world.run_until(lambda: not world.slices())
    assert not world.farm.machines
    world.close()


def test_a_stock_out_closes_its_pool_and_the_next_one_serves(tmp_path: Path) -> None:
    world = make(tmp_path, priority=1)
    world.apply(pool("dear", priority=2))
    world.farm.refuses["cpu"] = CreateOutcome.STOCK_OUT
    submitted = world.submit(job("one"))
    world.run_until(lambda: submitted.status is JobState.SUCCEEDED)
    assert {each.pool for each in world.slices()} == {"dear"}
    assert pool_of(world).standing.outcome is CreateOutcome.STOCK_OUT
    assert world.farm.made.total() == 1
    world.close()


def test_want_of_quota_closes_all_pools_of_its_key(tmp_path: Path) -> None:
    world = make(tmp_path, quota_key="eu", priority=1)
    world.apply(pool("two", quota_key="eu", priority=2))
    world.apply(pool("us", priority=3))
    world.farm.refuses |= dict.fromkeys(("cpu", "two"), CreateOutcome.QUOTA)
    submitted = world.submit(job("one"))
    world.run_until(lambda: submitted.status is JobState.SUCCEEDED)
    assert pool_of(world, "two").standing.outcome is CreateOutcome.QUOTA
    assert pool_of(world, "us").standing.outcome is None
    world.close()


def test_a_pool_whose_slices_do_not_boot_makes_one_at_a_time(tmp_path: Path) -> None:
    world = make(tmp_path, boot_timeout=60, min_slices=0)
    world.farm.faults = FarmFaults(never_boots=1.0)
    waiting = world.submit(job("some", tasks=4))
    world.run(40)
    world.run_until(lambda: pool_of(world).standing.failures >= 4, 5000)
    world.run_until(lambda: sum(each.is_coming for each in world.slices()) > 0, 5000)
    assert sum(each.is_coming for each in world.slices()) == 1, "probed by one"
    world.farm.faults = FarmFaults()
    world.run_until(lambda: waiting.status is JobState.SUCCEEDED, 5000)
    assert pool_of(world).standing.failures == 0
    world.close()


def test_a_paused_pool_makes_nothing_and_its_idle_slices_go(tmp_path: Path) -> None:
    world = make(tmp_path)
    first = world.submit(job("one"))
    world.run_until(lambda: first.status is JobState.SUCCEEDED)
    world.ask(lambda work, parts: parts[PoolRequests].pause(work, ROOT, "cpu"))
    world.run_until(lambda: not world.slices(), 200)
    waiting = world.submit(job("two"))
    world.run(10)
    assert not world.slices()
    assert ReasonCode.POOL_PAUSED in codes(world, waiting)
    world.ask(lambda work, parts: parts[PoolRequests].resume(work, ROOT, "cpu"))
    world.run_until(lambda: waiting.status is JobState.SUCCEEDED)
    world.close()


def test_a_held_slice_stays_until_it_is_released(tmp_path: Path) -> None:
    world = make(tmp_path)
    world.submit(job("one"))
    world.run_until(lambda: only(world).status is SliceStatus.READY)
    id_ = only(world).id
    hold = world.ask(lambda work, parts: parts[PoolRequests].hold(work, ROOT, id_, held=True))
    assert hold.held_by == "root"
    world.run(500)
    stays = only(world).stays
    assert stays is not None
    assert stays.code is ReasonCode.SLICE_HELD
    world.ask(lambda work, parts: parts[PoolRequests].hold(work, ROOT, id_, held=False))
    world.run_until(lambda: not world.slices(), 200)
    world.close()


def test_a_machine_that_its_provider_lost_is_replaced_with_its_slice(tmp_path: Path) -> None:
    world = make(tmp_path)
    world.behaviour = lambda start: Run(400.0)
    running = world.submit(job("one"))
    world.run_until(lambda: running.status is JobState.RUNNING)
    lost = only(world)
    world.farm.delete(lost.id)
    world.run_until(lambda: lost.status is SliceStatus.FAILED, 400)
    world.run_until(lambda: running.status is JobState.SUCCEEDED, 2000)
    assert world.farm.made.total() == 2
    assert len(pool_of(world).losses) == 1
    world.close()


def test_an_interruption_drains_at_once_and_another_slice_is_asked_for_in_the_same_wake(
    tmp_path: Path,
) -> None:
    world = make(tmp_path, preemptible=True)
    world.behaviour = lambda start: Run(400.0)
    running = world.submit(job("one"))
    world.run_until(lambda: running.status is JobState.RUNNING)
    first = only(world)
    (machine,) = world.farm.of(first.id)
    machine.leaves_at = world.clock.now() + 120
    world.run_until(lambda: first.doomed is not None, 60)
    world.run(2)
    assert [each.is_coming for each in world.slices() if each is not first] == [True]
    world.run_until(lambda: running.status is JobState.SUCCEEDED, 2000)
    world.close()


def test_many_silent_machines_stop_everything_until_an_operator_says_so(tmp_path: Path) -> None:
    world = make(tmp_path, min_slices=4, idle_timeout=10)
    world.run_until(lambda: [each.status for each in world.slices()] == [SliceStatus.READY] * 4)
    for agent in [*world.agents.values()][:2]:
        world.disconnect(agent)
    world.run_until(lambda: pool_status(world) is PoolStatus.TRIPPED, 60)
    world.run(2000)
    assert len(world.slices()) == 4, "nothing was replaced"
    assert len(world.farm.machines) == 4
    world.ask(lambda work, parts: parts[PoolRequests].resume(work, ROOT, "cpu"))
    world.run(1000)
    assert pool_status(world) is PoolStatus.ACTIVE
    assert world.farm.made.total() == 6, "both were replaced"
    assert len(world.slices()) == 4
    world.close()


def test_a_pool_stands_still_even_if_nobody_knows_why(tmp_path: Path) -> None:
    world = make(tmp_path, min_slices=4, idle_timeout=10)
    world.run_until(lambda: [each.status for each in world.slices()] == [SliceStatus.READY] * 4)
    for agent in [*world.agents.values()][:2]:
        world.disconnect(agent)
    world.run_until(lambda: pool_status(world) is PoolStatus.TRIPPED, 60)
    doomed, *_ = world.slices()
    gone = SliceMachineGone(machine=doomed.names[0])
    lifecycle = world.plane.parts[SliceLifecycle]
    world.ask(lambda work, parts: lifecycle.doom(work, doomed, "a test", gone))
    pool_of(world).reason = None  # as an older row may lack it
    world.run(600)
    assert len(world.slices()) == len(world.farm.machines) == 4
    id_ = doomed.id
    world.ask(lambda work, parts: parts[PoolRequests].resume(work, ROOT, "cpu"))
    world.run_until(lambda: not world.farm.of(id_), 60)
    world.close()


def test_a_pool_goes_on_by_itself_once_all_machines_are_heard_again(tmp_path: Path) -> None:
    world = make(tmp_path, min_slices=4)
    world.run_until(lambda: [each.status for each in world.slices()] == [SliceStatus.READY] * 4)
    silent = [*world.agents.values()][:2]
    for agent in silent:
        world.disconnect(agent)
    world.run_until(lambda: pool_status(world) is PoolStatus.TRIPPED, 60)
    for agent in silent:
        world.connect(agent)
    world.run(5)
    assert pool_status(world) is PoolStatus.ACTIVE
    assert world.farm.made.total() == 4
    world.close()


def test_a_pool_that_stands_still_and_is_paused_goes_on_standing_still(tmp_path: Path) -> None:
    world = make(tmp_path, min_slices=4, idle_timeout=10)
    world.run_until(lambda: [each.status for each in world.slices()] == [SliceStatus.READY] * 4)
    silent = [*world.agents.values()][:2]
    for agent in silent:
        world.disconnect(agent)
    world.run_until(lambda: pool_status(world) is PoolStatus.TRIPPED, 60)

    world.ask(lambda work, parts: parts[PoolRequests].pause(work, ROOT, "cpu"))
    world.run(2000)

    assert pool_status(world) is PoolStatus.TRIPPED
    assert len(world.farm.machines) == 4, "none was deleted"
    for agent in silent:
        world.connect(agent)
    world.run_until(lambda: pool_status(world) is PoolStatus.PAUSED, 60)
    world.close()


def test_one_dead_machine_is_replaced_after_a_grace(tmp_path: Path) -> None:
    world = make(tmp_path, min_slices=3)
    world.run_until(lambda: [each.status for each in world.slices()] == [SliceStatus.READY] * 3)
    agent = next(iter(world.agents.values()))
    world.disconnect(agent)
    world.run(200)
    assert world.farm.made.total() == 3, "it may come back"
    world.run(400)
    assert world.farm.made.total() == 4
    assert len(world.slices()) == 3
    world.close()


def test_machines_that_belong_to_nobody_are_deleted_after_a_grace(tmp_path: Path) -> None:
    world = make(tmp_path, min_slices=3)
    world.run(60)
    spec = world.slices()[0].spec
    world.farm.make(world.ids.new("slc"), "cpu", spec, ["stray"], "no token")  # type: ignore[arg-type]
    world.run(200)
    assert len(world.farm.machines) == 4
    orphans = world.plane.parts[Fleet].orphans["cpu"]
    assert len(orphans) == 1
    world.run(400)
    assert len(world.farm.machines) == 3
    world.close()


def stray(world: World) -> None:
    """A machine of a slice that nobody knows."""
    names = ["stray"]
    world.farm.make(SliceId(world.ids.new("slc")), "cpu", pool_of(world).spec, names, "no token")


def read_again(world: World) -> None:
    """The mirror is thrown away, because a commit failed."""

    def full(unit: Unit) -> None:
        raise CommitFailed("database or disk is full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.store, "commit", full)
        with pytest.raises(NotStored):
            world.ask(lambda work, parts: work.unit.also(text("UPDATE cluster SET value = value")))
    world.run(2)
    world.connect_again()


def test_machines_that_belong_to_nobody_are_known_however_often_the_mirror_is_read(
    tmp_path: Path,
) -> None:
    world = make(tmp_path, min_slices=3)
    world.run(60)
    stray(world)
    for _ in range(4):
        world.run(95)
        read_again(world)
    assert len(world.farm.machines) == 3
    world.close()


def test_a_controller_that_starts_deletes_no_machines_before_the_grace_and_two_lists(
    tmp_path: Path,
) -> None:
    world = make(tmp_path, min_slices=3)
    world.run(60)
    stray(world)
    world.run(290)
    world.restart_controller()
    world.run(290)
    assert len(world.farm.machines) == 4
    world.run(60)
    assert len(world.farm.machines) == 3
    world.close()


def test_many_unknown_machines_as_after_a_restore_are_left_alone(tmp_path: Path) -> None:
    world = make(tmp_path)
    spec = pool_of(world).spec
    for _ in range(3):
        id_ = world.ids.new("slc")
        world.farm.make(id_, "cpu", spec, [f"m-{id_}"], "no token")  # type: ignore[arg-type]
    world.run(1000)
    assert pool_status(world) is PoolStatus.TRIPPED
    assert len(world.farm.machines) == 3
    world.ask(lambda work, parts: parts[PoolRequests].resume(work, ROOT, "cpu"))
    world.run(600)
    assert not world.farm.machines, "an operator said so"
    world.close()


def test_a_machine_joins_with_the_names_and_attributes_of_its_slice_alone(tmp_path: Path) -> None:
    world = make(tmp_path, attributes={"zone": "a"}, min_slices=1)
    slice_ = only(world)
    with pytest.raises(Exception, match="other names"):
        world.join("stranger", slice_.secret)
    world.run_until(lambda: only(world).status is SliceStatus.READY)
    assert not slice_.secret
    (agent,) = world.plane.live.agents.values()
    assert agent.attributes == {
        "zone": "a",
        "pool": "cpu",
        "slice": slice_.id,
        "preemptible": "false",
    }
    world.close()


def test_labels_change_in_place_and_a_new_shape_leaves_old_slices(tmp_path: Path) -> None:
    world = make(tmp_path, min_slices=2)
    world.run_until(lambda: [each.status for each in world.slices()] == [SliceStatus.READY] * 2)
    world.apply(pool(min_slices=2, attributes={"zone": "b"}))
    assert {each.attributes["zone"] for each in world.plane.live.agents.values()} == {"b"}
    assert pool_of(world).revision == 1
    world.apply(pool(min_slices=2, machine={"cpu": 8, "memory": "16GiB"}))
    assert pool_of(world).revision == 2
    world.run(100)
    assert {each.revision for each in world.slices()} == {1}
    world.ask(lambda work, parts: parts[PoolRequests].replace(work, ROOT, "cpu", 1))
    world.run(300)
    assert {each.revision for each in world.slices()} == {2}
    assert len(world.slices()) == 2
    world.close()


def test_replacing_stops_at_the_first_slice_that_fails(tmp_path: Path) -> None:
    world = make(tmp_path, min_slices=3, boot_timeout=60)
    world.run_until(lambda: [each.status for each in world.slices()] == [SliceStatus.READY] * 3)
    world.apply(pool(min_slices=3, boot_timeout=60, machine={"cpu": 8, "memory": "16GiB"}))
    world.farm.faults = FarmFaults(never_boots=1.0)
    world.ask(lambda work, parts: parts[PoolRequests].replace(work, ROOT, "cpu", 1))
    world.run(200)
    assert sum(each.revision == 1 for each in world.slices()) == 2
    assert pool_of(world).replacing == 0
    world.close()


def test_a_deleted_pool_ends_with_its_last_machine(tmp_path: Path) -> None:
    world = make(tmp_path, min_slices=2)
    world.run(60)
    world.farm.faults = FarmFaults(mute=1.0)
    world.ask(lambda work, parts: parts[PoolRequests].delete(work, ROOT, "cpu"))
    with pytest.raises(Conflict, match="is being deleted"):
        world.apply(pool(min_slices=3))
    world.farm.faults = FarmFaults()
    world.run(200)
    assert not world.plane.live.of(Pool)
    assert not world.farm.machines
    world.apply(pool())
    assert pool_of(world).revision == 1
    world.close()


def test_two_pools_never_have_one_tag(tmp_path: Path) -> None:
    world = make(tmp_path)
    with pytest.raises(InvalidSpec, match="differs by case only"):
        world.apply(pool("CPU"))
    world.close()


def test_a_stopped_machine_may_boot_anew_and_is_replaced_where_it_does_not(tmp_path: Path) -> None:
    world = make(tmp_path, min_slices=3)
    world.run_until(lambda: [each.status for each in world.slices()] == [SliceStatus.READY] * 3)
    machine = next(iter(world.farm.machines.values()))
    machine.state = MachineState.STOPPED
    (agent,) = [each for each in world.agents.values() if each.name == machine.name]
    world.disconnect(agent)
    world.run(200)
    assert world.farm.made.total() == 3
    world.run(300)
    assert world.farm.made.total() == 4
    assert agent.id not in world.plane.live.agents
    assert {each.status for each in world.plane.live.agents.values()} == {AgentStatus.ALIVE}
    world.close()
