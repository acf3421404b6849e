"""Jobs that people hold: no task begins until somebody releases them."""

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.world import ADA, World
from tests.databases import ON_BOTH

from muster.control.job.explanation import explain_job
from muster.control.job.holding import hold_job, release_job
from muster.control.job.requests import JobRequests
from muster.control.session.cluster.state import ClusterState
from muster.core.errors import Conflict, NotFound
from muster.core.owner import Owner, Principal, Role
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_tasks import JobHeld
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, JobState, TaskState
from muster.store.records import Job
from muster.wire.messages import Start

pytestmark = ON_BOTH
ROOT = Principal(Owner("default", "default", "root"), Role.ADMIN)
BOB = Principal(Owner("default", "default", "bob"), Role.USER)


class Script:
    """Programs that run for five seconds, and the indexes of tasks in the order of their starts."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def __call__(self, start: Start) -> Run:
        self.started.append(start.env.get("MUSTER_TASK_INDEX", "0"))
        return Run(5)


def spec(**keys: object) -> JobSpec:
    return JobSpec.model_validate({"name": "train", "command": ["x"], **keys})


def hold(world: World, job: Job, by: Principal = ADA) -> bool:
    return bool(world.ask(lambda work, parts: hold_job(work, parts[ClusterState], by, job.id)))


def release(world: World, job: Job, by: Principal = ADA) -> bool:
    return bool(world.ask(lambda work, parts: release_job(work, parts[ClusterState], by, job.id)))


def why(world: World, job: Job) -> list[str]:
    cluster = world.plane.parts[ClusterState]
    found = explain_job(world.plane.live, cluster, job.id, world.clock.now())
    return [each.code for each in found.reasons]


def finish(world: World, job: Job) -> None:
    world.run_until(lambda: job.status in JOB_TABLE.terminal)


@pytest.mark.parametrize("restart", [False, True])
def test_job_that_is_handed_in_held_waits_for_its_release(
    group_world: MakeWorld, restart: bool
) -> None:
    script = Script()
    world = group_world({"a": 8}, script)
    job = world.submit(spec(tasks=3, hold=True, scheduling_timeout=10))
    if restart:
        world.restart_controller()
        job = world.plane.live.jobs[job.id]
    world.run(30)
    assert script.started == []
    assert why(world, job)[0] == "JOB_HELD"
    assert isinstance(job.held, JobHeld)
    assert job.held.by == ADA.owner.user
    assert release(world, job)
    finish(world, job)
    assert job.status is JobState.SUCCEEDED, "the hold is no wait for room"
    assert sorted(script.started) == ["0", "1", "2"]


@pytest.mark.parametrize("restart", [False, True])
def test_held_job_runs_on_and_begins_no_more_tasks(group_world: MakeWorld, restart: bool) -> None:
    script = Script()
    world = group_world({"a": 2}, script)
    job = world.submit(spec(tasks=40))
    world.run(2)
    begun = len(script.started)
    assert begun == 2
    assert hold(world, job)
    assert not hold(world, job), "it is held already"
    if restart:
        world.restart_controller()
        job = world.plane.live.jobs[job.id]
    world.run(40)
    assert len(script.started) == begun, "what stood by on the agent was recalled"
    assert job.counts[TaskState.SUCCEEDED] == begun
    assert "JOB_HELD" in why(world, job)
    assert release(world, job)
    assert not release(world, job)
    finish(world, job)
    assert job.status is JobState.SUCCEEDED
    assert len(script.started) == 40


def test_gang_that_waits_for_room_does_not_begin_while_it_is_held(group_world: MakeWorld) -> None:
    script = Script()
    world = group_world({"a": 2}, script)
    first = world.submit(spec(name="first", tasks=2))
    gang = world.submit(spec(name="gang", tasks=2, coscheduled=True))
    hold(world, gang)
    finish(world, first)
    world.run(10)
    assert len(script.started) == 2
    release(world, gang)
    finish(world, gang)
    assert gang.status is JobState.SUCCEEDED


def test_other_work_goes_past_a_held_job(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, Script())
    held = world.submit(spec(name="held", hold=True, priority=100))
    other = world.submit(spec(name="other"))
    finish(world, other)
    assert held.status is JobState.PENDING


def test_admins_hold_is_released_by_admins_alone(group_world: MakeWorld) -> None:
    world = group_world({"a": 8}, Script())
    job = world.submit(spec(hold=True))
    assert hold(world, job, ROOT), "it takes the place of the owner's"
    assert not hold(world, job)
    with pytest.raises(Conflict, match=r"held by root .* only admins release it"):
        release(world, job)
    world.run(5)
    assert job.status is JobState.PENDING
    assert release(world, job, ROOT)
    finish(world, job)


def test_others_neither_hold_nor_release(group_world: MakeWorld) -> None:
    world = group_world({}, Script())
    job = world.submit(spec())
    for change in (hold, release):
        with pytest.raises(NotFound):
            change(world, job, BOB)


def test_job_that_is_held_released_and_held_again_is_cancelled(
    group_world: MakeWorld,
) -> None:
    world = group_world({}, Script())
    job = world.submit(spec())
    hold(world, job)
    release(world, job)
    hold(world, job)
    world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, job.id))
    finish(world, job)
    assert job.status is JobState.KILLED
    assert job.reason is not None
    assert job.reason.code is ReasonCode.CANCELLED
