"""Jobs that go on after their time limit: on_timeout."""

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import attempt
from tests.databases import ON_BOTH

from muster.core.errors import InvalidSpec
from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.core.specs.load import load_spec
from muster.core.states import JOB_TABLE, JobState
from muster.wire.messages import Start

pytestmark = ON_BOTH

CPUS = Resources(cpu_milli=4000, memory_bytes=2**33)
LONG = {"command": ["train"], "timeout": 60, "on_timeout": "retry", "grace": 5}


@pytest.mark.parametrize("gang", [{}, {"tasks": 3, "coscheduled": True}])
def test_job_goes_on_after_its_time_limit_until_it_is_done(
    worlds: MakeWorld, gang: dict[str, object]
) -> None:
    def saves_and_goes_on(start: Start) -> Run:
        return Run(seconds=100 if attempt(start) < 3 else 10)

    world = worlds({"a": CPUS}, behaviour=saves_and_goes_on)
    job = world.submit(JobSpec.model_validate({**LONG, **gang}))
    world.run(61.0)
    assert job.status not in JOB_TABLE.terminal
    world.run_until(lambda: job.status in JOB_TABLE.terminal)

    assert job.status is JobState.SUCCEEDED
    assert job.finished_at is not None
    assert job.started_at is not None
    assert job.finished_at - job.started_at == pytest.approx(130, abs=5)


def test_budget_of_time_limits_has_an_end_and_is_charged_for_nothing_else(
    worlds: MakeWorld,
) -> None:
    world = worlds({"a": CPUS}, behaviour=lambda start: Run(seconds=1e9))
    job = world.submit(JobSpec.model_validate({**LONG, "max_retries_timeout": 2}))
    [task] = job.tasks.values()
    world.run_until(lambda: job.status in JOB_TABLE.terminal)

    assert job.status is JobState.KILLED
    assert job.reason is not None
    assert job.reason.code is ReasonCode.TIMEOUT
    assert (task.attempt, task.timeout_count) == (3, 3)
    assert (task.failure_count, task.preemption_count) == (0, 0)


def test_charges_for_time_limits_outlast_a_restart_of_the_controller(worlds: MakeWorld) -> None:
    world = worlds({"a": CPUS}, behaviour=lambda start: Run(seconds=1e9))
    id_ = world.submit(JobSpec.model_validate(LONG)).id
    world.run(70.0)
    world.restart_controller()
    assert world.plane.live.jobs[id_].tasks[0].timeout_count == 1


def test_job_without_a_time_limit_cannot_go_on_after_it() -> None:
    with pytest.raises(InvalidSpec, match="on_timeout is retry: there is no time limit"):
        load_spec("command: x\non_timeout: retry\n")
