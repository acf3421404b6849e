"""A group that is closed to a project: work of it that waits is cancelled, what runs goes on."""

from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.world import ADA, World, state

from muster.control.group.requests import GroupRequests
from muster.core.owner import Owner, Principal, Role
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec, ScalingGroup
from muster.core.states import JobState

EVE = Principal(Owner("default", "lab", "eve"), Role.USER)


def open_to(world: World, *projects: str) -> None:
    spec = ScalingGroup.model_validate({"name": "default", "projects": projects})
    world.ask(lambda work, parts: parts[GroupRequests].put_group(work, spec))


def test_work_that_waits_when_its_project_loses_the_group_is_cancelled(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 1}, lambda start: Run(5), backlog_window=0)
    runs, waits = [world.submit(JobSpec(command=["x"]), EVE) for _ in range(2)]
    other = world.submit(JobSpec(command=["x"]), ADA)
    open_to(world, "default/default", "default/sales")
    assert waits.status is JobState.UNSCHEDULABLE
    assert waits.reason is not None
    assert waits.reason.code is ReasonCode.NO_GROUP_ACCESS
    assert (runs.status, state(other)) == (JobState.RUNNING, JobState.PENDING)
    world.run(11)
    assert (state(runs), state(other)) == (JobState.SUCCEEDED, JobState.SUCCEEDED)


def test_work_of_a_project_that_the_group_is_narrowed_to_stays(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, lambda start: Run(5), backlog_window=0)
    jobs = [world.submit(JobSpec(command=["x"], tasks=2), who) for who in (ADA, EVE)]
    open_to(world, "default/default", "default/lab")
    world.run(21)
    assert [job.status for job in jobs] == [JobState.SUCCEEDED] * 2
