"""The words for people about machines that may come: at submission, and by `muster why`."""

from pathlib import Path

import pytest
from proving.hollow.performers.providers import FarmFaults
from proving.hollow.supervisor import Run
from tests.control.pool.pooled import codes, make, only, pool_of, sentences
from tests.control.pool_scenarios import job, pool
from tests.control.world import ROOT, World

from muster.autoscaling.standing import CreateOutcome
from muster.control.job.explanation import explain_job, job_needs_agent
from muster.control.plan import plan_job
from muster.control.pool.decisions import unmet_views
from muster.control.pool.outlook import GroupOutlook
from muster.control.pool.requests import PoolRequests
from muster.core.errors import InvalidSpec
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec, ScalingGroup
from muster.core.states import JobState
from muster.core.states.slice import SliceStatus
from muster.store.queries.history import read_history
from muster.store.records import Job

GANG = job("gang", tasks=40, coscheduled=True)
NEVER = (
    "it asks for 40 kernels of 4 cpu at the same time, and group default can never hold more than "
    "4: its pools may have 4 machines at most that hold such a kernel"
)


def warned(world: World, submitted: Job) -> list[str]:
    """The warnings of the answer to a submission."""
    found = job_needs_agent(world.plane.live, world.cluster, submitted)
    return [each.sentence() for each in found]


# Gangs beyond all pools


def test_gang_that_no_pools_together_can_hold_is_told_how_much_they_can(tmp_path: Path) -> None:
    world = make(tmp_path)
    submitted = world.submit(GANG)
    assert warned(world, submitted) == [NEVER]
    world.run(1)
    assert sentences(world, submitted) == NEVER
    fits = world.submit(job("fits", tasks=4, coscheduled=True))
    assert not warned(world, fits)
    plan = plan_job(world.plane.live, world.cluster, ROOT, job("p", 5, coscheduled=True), 0.0)
    assert [each.code for each in plan.reasons][-1] == ReasonCode.GANG_OUT_OF_REACH
    outlook = world.cluster.groups["default"].outlook
    assert isinstance(outlook, GroupOutlook)
    (unmet,), _ = unmet_views(outlook, ROOT)
    assert unmet.never is not None
    assert (unmet.could_be_met, unmet.never.sentence) == (False, NEVER)
    world.close()


def test_gang_that_a_fixed_group_can_never_hold_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, {}, group=ScalingGroup(name="default", fixed=True))
    world.apply(pool())
    world.run(1)
    with pytest.raises(InvalidSpec, match="can never hold more than 4"):
        world.submit(GANG)
    world.submit(job("fits", tasks=4, coscheduled=True))
    world.close()


# Pools that are full, or fail


def test_full_pool_leads_and_nobody_is_told_to_ask_for_what_agents_have(tmp_path: Path) -> None:
    world = make(tmp_path, max_slices=1)
    world.apply(pool("large", machine={"cpu": 64, "memory": "8GiB"}, max_slices=1))
    world.behaviour = lambda start: Run(300.0)
    world.submit(job("small"))
    world.run_until(lambda: any(each.status is SliceStatus.READY for each in world.slices()))
    world.ask(lambda work, parts: parts[PoolRequests].pause(work, ROOT, "large"))
    waiting = world.submit(job("waits", cpu=64))
    world.run(1)
    view = explain_job(world.plane.live, world.cluster, waiting.id, world.clock.now())
    assert [each.code for each in view.reasons] == ["POOL_PAUSED", "POOL_TOO_SMALL"]
    second = world.submit(job("second"))
    world.run(1)
    view = explain_job(world.plane.live, world.cluster, second.id, world.clock.now())
    assert [each.code for each in view.reasons] == ["POOL_AT_MAX", "POOL_PAUSED", "NO_ROOM"]
    assert view.reasons[0].sentence == "pool cpu makes no more: it has 1 of at most 1 slice"
    world.close()


def test_creation_that_fails_again_and_again_is_told_with_the_providers_words(
    tmp_path: Path,
) -> None:
    world = make(tmp_path, request_timeout=600)
    world.farm.refuses["cpu"] = CreateOutcome.UNKNOWN
    waiting = world.submit(job("one"))
    world.run_until(lambda: only(world).tries == 3 and only(world).handed_at is None, 600)
    slice_, said = only(world), sentences(world, waiting)
    in_s = round(slice_.retry_at - world.clock.now())
    assert f"slice {slice_.id} was asked for 3 times, and is not made yet: provider local" in said
    assert "says the farm" in said
    assert f"it is asked for again in {in_s}s" in said
    world.farm.refuses.clear()
    world.run_until(lambda: only(world).status is not SliceStatus.REQUESTING, 600)
    assert ReasonCode.SLICE_TRIED_AGAIN not in codes(world, waiting)
    world.close()


def test_slice_that_comes_after_others_failed_says_so(tmp_path: Path) -> None:
    world = make(tmp_path, boot_timeout=60)
    world.farm.faults = FarmFaults(never_boots=1.0)
    waiting = world.submit(job("one"))
    world.run_until(lambda: pool_of(world).standing.failures == 2, 5000)
    world.run_until(lambda: any(each.is_coming for each in world.slices()), 5000)
    world.run(1)
    assert (
        "pool cpu tries once more, after 2 failed requests, the last with: 0 of its 1 machine "
        "joined within 1m00s; `muster slices show "
    ) in sentences(world, waiting)
    world.close()


def test_words_of_a_machines_log_are_told_of_its_slice_and_not_to_all_who_wait(
    tmp_path: Path,
) -> None:
    world = make(tmp_path, boot_timeout=60)
    world.farm.faults = FarmFaults(never_boots=1.0)
    waiting = world.submit(job("one"))
    world.run_until(lambda: bool(world.slices()))
    failed = only(world)
    world.run_until(lambda: failed.doomed is not None, 5000)
    assert failed.doomed is not None
    assert failed.doomed.sentence().endswith(": boots for ever")
    closed = sentences(world, waiting)
    world.run_until(lambda: any(each.is_coming for each in world.slices()), 5000)
    world.run(1)
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        rows = read_history(connection, world.plane.live.entities, ROOT, "cpu", 100).items
    noted = " ".join(why.sentence for row in rows for why in row.reasons)
    for said in (closed, sentences(world, waiting), noted):
        assert f"`muster slices show {failed.id}` has more" in said
        assert "boots for ever" not in said
    world.close()


# Machines that cannot run it


def test_machine_that_cannot_run_a_job_does_not_end_it_while_a_pool_may_make_others(
    tmp_path: Path,
) -> None:
    world = make(tmp_path, max_slices=2)
    refused: set[str] = set()

    def answer(start: object) -> Run:
        run = Run(5.0) if refused else Run(create_failure=ReasonCode.WORKDIR_MISSING)
        refused.add("first")
        return run

    world.behaviour = answer
    submitted = world.submit(JobSpec.model_validate({**job("one").model_dump(), "workdir": "/d"}))
    world.run_until(lambda: submitted.status is JobState.SUCCEEDED, 600)
    assert world.farm.made.total() == 2
    world.close()


def test_job_ends_once_all_machines_that_its_pools_may_have_cannot_run_it(tmp_path: Path) -> None:
    world = make(tmp_path, max_slices=2)
    world.behaviour = lambda start: Run(create_failure=ReasonCode.WORKDIR_MISSING)
    submitted = world.submit(JobSpec.model_validate({**job("one").model_dump(), "workdir": "/d"}))
    world.run_until(lambda: submitted.status is JobState.UNSCHEDULABLE, 600)
    assert submitted.reason is not None
    assert submitted.reason.code is ReasonCode.NO_AGENT_ABLE
    assert world.farm.made.total() == 2, "each slice is tried once"
    world.close()
