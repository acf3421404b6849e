"""Jobs for which the success of some of their tasks is enough."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import task_index
from tests.databases import ON_BOTH

from muster.control.job.judge import derive_job
from muster.core.errors import InvalidSpec
from muster.core.reasons.of_tasks import EnoughSucceeded
from muster.core.resources import Resources
from muster.core.specs import JobSpec, load_spec
from muster.core.states import JOB_TABLE, JobState, TaskState

COUNTS = st.dictionaries(st.sampled_from(TaskState), st.integers(0, 4))


@ON_BOTH
def test_other_tasks_are_stopped_once_enough_have_succeeded(worlds: MakeWorld) -> None:
    def behaviour(start: object) -> Run:
        index = task_index(start)  # type: ignore[arg-type]
        return Run(1.0, exit_code=1) if index == 0 else Run(10.0 if index < 3 else 1e6)

    began = 1.7e9  # of virtual time
    world = worlds({"a": Resources(cpu_milli=4000, memory_bytes=2**30)}, behaviour=behaviour)
    spec = {"command": ["x"], "tasks": 9, "stop_when": 2, "keep_going": True}
    job = world.submit(JobSpec.model_validate(spec))
    world.run_until(lambda: job.status in JOB_TABLE.terminal)

    assert job.status is JobState.SUCCEEDED
    assert job.reason == EnoughSucceeded(succeeded=2, enough=2)
    assert "2 tasks succeeded, which is enough" in job.reason.sentence()
    world.run_until(lambda: not world.store.live.ledger)
    assert (job.counts[TaskState.SUCCEEDED], job.counts[TaskState.FAILED]) == (2, 1)
    assert world.clock.now() < began + 1e5


@given(COUNTS, st.integers(0, 3), st.booleans(), st.integers(1, 5))
def test_job_ends_otherwise_as_without_the_rule(
    counts: dict[TaskState, int], tolerated: int, keep_going: bool, enough: int
) -> None:
    total = max(sum(counts.values()), 1)
    without = derive_job(JobState.RUNNING, total, counts, tolerated, keep_going=keep_going)
    ruled = derive_job(
        JobState.RUNNING, total, counts, tolerated, keep_going=keep_going, enough=enough
    )
    has_enough = counts.get(TaskState.SUCCEEDED, 0) >= enough
    assert ruled is (JobState.SUCCEEDED if has_enough else without)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("stop_when: often", "expected first_success, or a number of tasks"),
        ("stop_when: 0", "expected at least 1"),
        ("stop_when: 3\ntasks: 2", "expected at most as many as tasks: 2"),
        ("stop_when: 1\ntasks: 2\ncoscheduled: true", "a gang ends as one"),
    ],
)
def test_wrong_number_of_successes_is_refused(written: str, told: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        load_spec(f"command: [x]\n{written}")
    assert told in str(refused.value)


def test_first_success_is_one() -> None:
    spec = load_spec("command: [x]\nstop_when: first_success\ntasks: 4")
    assert isinstance(spec, JobSpec)
    assert spec.stop_when == 1
