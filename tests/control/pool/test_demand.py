"""Demand that opens slices: how many, for whom, and what people are told."""

from pathlib import Path
from typing import Any

from proving.hollow.supervisor import Run
from tests.control.pool.pooled import codes, make, only, sentences
from tests.control.pool_scenarios import job, pool
from tests.control.world import ROOT, World

from muster.control.group.requests import GroupRequests
from muster.control.job.explanation import job_needs_agent
from muster.control.plan import plan_job
from muster.core.reasons import ReasonCode
from muster.core.specs import Level, QuotaLimits, QuotaSpec, ScalingGroup
from muster.core.states import JobState, SessionStatus
from muster.core.states.slice import SliceStatus


def test_what_waits_for_a_slice_says_so(tmp_path: Path) -> None:
    world = make(tmp_path)
    waiting = world.submit(job("one"))
    assert codes(world, waiting) == {ReasonCode.WAITS_FOR_SLICE}
    slice_ = only(world)
    assert f"waits for slice {slice_.id} of pool cpu, which is BOOTING" in sentences(world, waiting)
    world.close()


def test_what_no_pool_can_hold_says_why(tmp_path: Path) -> None:
    world = make(tmp_path)
    waiting = world.submit(job("large", cpu=64))
    world.run(1)
    assert codes(world, waiting) == {ReasonCode.POOL_TOO_SMALL}, "not that there are no agents"
    assert not world.slices()
    world.close()


def test_a_plan_tells_what_would_be_made_and_its_price(tmp_path: Path) -> None:
    world = make(tmp_path, price=2.5)
    view = plan_job(world.plane.live, world.cluster, ROOT, job("some", tasks=3), world.clock.now())
    (adds,) = view.adds
    assert (adds.pool, adds.slices, adds.price) == ("cpu", 3, 7.5)
    assert not world.slices(), "nothing was made"
    world.close()


def test_ceilings_of_the_group_hold_for_all_pools_together(tmp_path: Path) -> None:
    world = World(tmp_path, {}, group=ScalingGroup(name="default", max_machines=3))
    world.apply(pool("a", priority=1, max_slices=2))
    world.apply(pool("b", priority=2, max_slices=2))
    world.run(1)
    waiting = world.submit(job("some", tasks=10))
    world.run(5)
    assert len(world.slices()) == 3
    world.run_until(lambda: waiting.status is JobState.SUCCEEDED)
    world.close()


def test_minimum_and_buffer_are_kept_and_nothing_is_made_and_deleted_in_turn(
    tmp_path: Path,
) -> None:
    world = make(tmp_path, min_slices=1, buffer_slices=1, idle_timeout=20)
    world.run(600)
    assert world.farm.made.total() == 1, "the minimum is idle, and so a buffer too"
    submitted = world.submit(job("one"))
    world.run_until(lambda: submitted.status is JobState.SUCCEEDED)
    world.run(600)
    assert len(world.slices()) == 1
    assert world.farm.made.total() <= 2
    world.close()


def test_a_gang_keeps_the_machines_that_came_while_others_are_coming(tmp_path: Path) -> None:
    world = make(tmp_path, max_slices=3)
    world.behaviour = lambda start: Run(20.0)
    gang = world.submit(job("gang", tasks=3, coscheduled=True))
    world.run(5)
    late = [*world.farm.machines.values()][-1]
    late.boots_at += 200
    world.run_until(lambda: sum(each.status is SliceStatus.READY for each in world.slices()) == 2)
    small = world.submit(job("small"))
    world.run(100)
    assert small.status is JobState.PENDING, "the gang's room is kept"
    assert codes(world, small) & {ReasonCode.BEHIND_PROMISE, ReasonCode.POOL_AT_MAX}
    world.run_until(lambda: gang.status is JobState.RUNNING)
    world.run_until(lambda: small.status is JobState.SUCCEEDED)
    assert world.farm.made.total() == 3
    world.close()


def test_what_needs_the_same_machines_gets_the_first_that_comes_by_its_priority(
    tmp_path: Path,
) -> None:
    machine = {"cpu": 4, "memory": "16GiB", "gpus": 2, "gpu_model": "H100"}
    world = make(tmp_path, priority=2, max_slices=1)
    world.apply(pool("full", machine=machine, priority=1, max_slices=1))
    world.apply(pool("gpu", machine=machine, priority=10, max_slices=2))
    world.behaviour = lambda start: Run(10_000.0)
    holder = world.submit(job("holder", resources={"cpu": 4, "gpu": 2}))
    world.run_until(lambda: holder.status is JobState.RUNNING)
    world.submit(job("plain", resources={"cpu": 4}))
    high = world.submit(job("high", resources={"cpu": 4, "gpu": 1}, priority=50))
    low = world.submit(job("low", resources={"cpu": 4, "gpu": 2}, priority=10))
    world.run(5)
    late, _ = [each for each in world.farm.machines.values() if each.pool == "gpu"]
    late.boots_at += 200
    world.run_until(lambda: JobState.RUNNING in {high.status, low.status})
    assert (high.status, low.status) == (JobState.RUNNING, JobState.PENDING)
    world.run_until(lambda: low.status is JobState.RUNNING)
    world.close()


def test_agents_take_no_work_before_their_slice_is_ready(tmp_path: Path) -> None:
    world = make(tmp_path, slice_size=2)
    submitted = world.submit(job("one"))
    world.run(5)
    late = [*world.farm.machines.values()][-1]
    late.boots_at += 60
    world.run_until(lambda: only(world).status is SliceStatus.INITIALIZING)
    world.run(30)
    (session,) = world.plane.live.sessions.values()
    assert session.status is SessionStatus.PENDING
    world.run_until(lambda: submitted.status is JobState.SUCCEEDED)
    world.close()


def test_what_no_pool_can_hold_is_told_when_it_is_handed_in(tmp_path: Path) -> None:
    world = make(tmp_path)
    fits, not_yet = world.submit(job("fits")), world.submit(job("large", cpu=64))
    live, cluster = world.plane.live, world.cluster
    assert not job_needs_agent(live, cluster, fits)
    told = {each.code for each in job_needs_agent(live, cluster, not_yet)}
    assert ReasonCode.POOL_TOO_SMALL in told
    world.close()


def test_an_idle_cluster_writes_nothing(tmp_path: Path) -> None:
    world = make(tmp_path, min_slices=2)
    world.run(120)
    before = world.store.last_commit_at
    world.run(50)
    assert world.store.last_commit_at == before
    world.close()


def test_a_sweep_opens_as_many_slices_as_its_tasks_need(tmp_path: Path) -> None:
    world = make(tmp_path, max_slices=10)
    world.submit(job("sweep", tasks=200, cpu=2))
    world.run(2)
    assert len(world.slices()) == 10
    world.close()


def test_work_that_waits_for_its_quota_opens_no_slice(tmp_path: Path) -> None:
    world = make(tmp_path)
    spec = QuotaSpec(level=Level.USER, name="default/default/ada", limits=QuotaLimits(cpu=4))
    world.ask(lambda work, parts: parts[GroupRequests].put_quota(work, spec))
    world.behaviour = lambda start: Run(300.0)
    world.submit(job("first"))
    world.run(40)
    world.submit(job("second"))
    world.run(10)
    assert len(world.slices()) == 1
    world.close()


def _quota(world: World, **keys: Any) -> None:
    spec = QuotaSpec.model_validate({"level": "user", "name": "default/default/ada", **keys})
    world.ask(lambda work, parts: parts[GroupRequests].put_quota(work, spec))


def test_ten_jobs_under_a_quota_for_one_open_one_slice_and_name_the_quota(tmp_path: Path) -> None:
    world = make(tmp_path, max_slices=20)
    _quota(world, sessions=1)
    world.behaviour = lambda start: Run(30.0)
    first, *others = [world.submit(job(f"job{number}")) for number in range(10)]
    world.run(5)
    assert len(world.slices()) == 1
    assert codes(world, first) == {ReasonCode.WAITS_FOR_SLICE}
    for each in others:
        assert codes(world, each) == {ReasonCode.QUOTA_IN_USE}
    world.run_until(lambda: all(each.status is JobState.SUCCEEDED for each in [first, *others]))
    assert world.farm.made.total() == 1, "they ran one after the other on the same slice"
    world.close()


def test_tasks_to_come_are_demand_as_far_as_the_quota_goes(tmp_path: Path) -> None:
    world = make(tmp_path, max_slices=100)
    _quota(world, limits={"cpu": 8})
    world.submit(job("sweep", tasks=400))
    world.run(10)
    assert len(world.slices()) == 2
    world.close()


def test_a_quota_binds_the_demand_of_all_groups_together(tmp_path: Path) -> None:
    world = make(tmp_path, max_slices=20)
    other = ScalingGroup(name="other")
    world.ask(lambda work, parts: parts[GroupRequests].put_group(work, other))
    world.apply(pool("far", group="other"))
    _quota(world, sessions=1)
    world.run(1)
    here = world.submit(job("here"))
    there = world.submit(job("there", group="other"))
    world.run(2)
    assert [each.pool for each in world.slices()] == ["cpu"]
    assert codes(world, there) == {ReasonCode.QUOTA_IN_USE}
    world.run_until(lambda: there.status is JobState.SUCCEEDED)
    assert here.status is JobState.SUCCEEDED
    world.close()
