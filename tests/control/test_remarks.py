"""Remarks of a job: of ends of its tasks, what their states do not tell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import attempt, task_index
from tests.control.world import ADA
from tests.databases import ON_BOTH

from muster.cli.follow.conclusion import conclusion
from muster.control.notice.message import job_message
from muster.core.job_remarks import MAX_RANGES, JobRemark, with_task
from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, JobState
from muster.core.task_ranges import TaskRanges
from muster.store.queries.jobs import read_job
from muster.wire.messages import Start

CPUS = Resources(cpu_milli=4000, memory_bytes=2**33)
KILLED = "processes of 2 tasks were killed for lack of memory, though their program went on: 1,3"


def hurt(start: Start) -> Run:
    """Helpers of tasks 1 and 3 are killed, in both attempts of the latter, and task 2 loses
    output."""
    match task_index(start):
        case 1:
            return Run(oom_kills=2)
        case 2:
            return Run(lost_output_bytes=100)
        case 3:
            return Run(oom_kills=1, exit_code=int(attempt(start) == 1))
    return Run()


@pytest.fixture
def four() -> JobSpec:
    return JobSpec(command=["x"], tasks=4, max_retries_failure=1)


@ON_BOTH
def test_job_tells_how_many_and_which_of_its_tasks_had_processes_killed(
    worlds: MakeWorld, four: JobSpec
) -> None:
    world = worlds({"a": CPUS}, behaviour=hurt)
    job = world.submit(four)
    world.run_until(lambda: job.status in JOB_TABLE.terminal)
    assert job.status is JobState.SUCCEEDED

    with world.store.engine.connect() as connection:
        view = read_job(connection, ADA, job.id)
    lost = "output of 1 task was lost because a disk was full: 2"
    assert sorted(each.sentence for each in view.remarks) == [lost, KILLED]
    assert f"remark: {KILLED}" in job_message(job).body
    assert conclusion(view, None).text.endswith(f"; {view.remarks[1].sentence}")


@ON_BOTH
def test_remarks_outlast_a_restart_of_the_controller(worlds: MakeWorld, four: JobSpec) -> None:
    world = worlds(
        {"a": CPUS}, behaviour=lambda start: Run(1e9) if task_index(start) == 0 else hurt(start)
    )
    id_ = world.submit(four).id
    world.run(10.0)
    world.restart_controller()
    remarks = world.plane.live.jobs[id_].remarks
    assert KILLED in [each.reason().sentence() for each in remarks]


@given(st.lists(st.integers(0, 200), min_size=1))
def test_remark_counts_each_task_once_and_names_a_bounded_number(indexes: list[int]) -> None:
    remarks: tuple[JobRemark, ...] = ()
    for index in indexes:
        remarks = with_task(remarks, ReasonCode.PROCESSES_KILLED, index)
    [remark] = remarks
    named = TaskRanges.parse(remark.which)
    assert len(named.ranges) <= MAX_RANGES
    if len(TaskRanges.of((each, each) for each in indexes).ranges) <= MAX_RANGES // 2:
        assert remark.tasks == len(named) == len(set(indexes))
    assert remark.reason().sentence()
