"""Work that is not to start before a moment."""

from datetime import UTC, datetime

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld

from muster.control.engine.timers import RESOLUTION_S
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec
from muster.core.states import JobState


@pytest.mark.parametrize("restart", [False, True])
def test_work_with_a_start_time_starts_by_itself_at_that_moment(
    group_world: MakeWorld, restart: bool
) -> None:
    world = group_world({"a": 4}, lambda start: Run(50))
    moment = world.clock.now() + 30.25
    text = datetime.fromtimestamp(moment, UTC).isoformat()
    spec = {"command": ["x"], "tasks": 3, "not_before": text}
    id_ = world.submit(JobSpec.model_validate(spec)).id
    if restart:
        world.restart_controller()
    job = world.plane.live.jobs[id_]
    (members,) = world.cluster.groups["default"].queue.classes
    assert [why.code for why in members.reasons] == [ReasonCode.BEFORE_START_TIME]

    # The controller alone knows when to look again.
    due = world.plane.step()
    while due is not None and due < moment:
        world.clock.advance_to(due)
        world.beat(world.agent("a"))  # which moves nothing
        due = world.plane.step()
        assert job.status is JobState.PENDING
    assert due is not None
    assert moment <= due <= moment + RESOLUTION_S
    world.clock.advance_to(due)
    world.settle()
    assert len(world.agent("a").running) == 3


def test_start_time_that_has_passed_holds_up_nothing(group_world: MakeWorld) -> None:
    world = group_world({"a": 4}, lambda start: Run(50))
    text = datetime.fromtimestamp(world.clock.now() - 1, UTC).isoformat()
    job = world.submit(JobSpec.model_validate({"command": ["x"], "not_before": text}))
    assert job.status is JobState.RUNNING


def test_work_that_waits_for_its_time_holds_up_nobody(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, lambda start: Run(50), queue="strict")
    text = datetime.fromtimestamp(world.clock.now() + 60, UTC).isoformat()
    world.submit(JobSpec.model_validate({"command": ["x"], "not_before": text, "priority": 90}))
    job = world.submit(JobSpec(command=["y"]))
    assert job.status is JobState.RUNNING
