"""A supervisor that was killed: what it had started last, nobody was told."""

import itertools

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import attempt

from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, JobState
from muster.wire.messages import Start


@pytest.fixture
def make_world(worlds: MakeWorld) -> MakeWorld:
    capacity = Resources(cpu_milli=1000, memory_bytes=2**30)
    return lambda behaviour: worlds({"a": capacity}, behaviour=behaviour)


def test_attempt_that_was_lost_before_its_start_was_told_does_not_run_again(
    make_world: MakeWorld,
) -> None:
    ran: list[int] = []

    def behaviour(start: Start) -> Run:
        ran.append(attempt(start))
        if len(ran) == 1:
            world.agent("a").online = False  # what it reports from here on is lost
        return Run(loses_supervisor=len(ran) == 1)

    world = make_world(behaviour)
    job = world.submit(JobSpec(command=["x"]))
    agent = world.agent("a")
    world.connect(agent)
    world.run(3)

    assert ran == [1, 2]
    assert job.status is JobState.SUCCEEDED
    assert not world.plane.live.ledger


def test_attempts_that_are_lost_before_they_begin_wait_ever_longer_and_cost_no_budget(
    make_world: MakeWorld,
) -> None:
    mended: list[bool] = []
    began: list[float] = []

    def behaviour(start: Start) -> Run:
        began.append(world.clock.now())
        return Run(loses_supervisor=not mended)

    world = make_world(behaviour)
    job = world.submit(JobSpec(command=["x"], max_retries_preemption=0))
    task = job.tasks[0]
    assert len(began) == 2, "the first retry does not wait"
    world.run_until(lambda: len(began) == 10)
    waits_s = [later - earlier for earlier, later in itertools.pairwise(began)]
    for wait_s, least_s in zip(waits_s, [0, 1, 2, 4, 8, 16, 32, 60, 60], strict=True):
        assert least_s <= wait_s <= least_s + 1.5
    assert (task.preemption_count, task.failure_count) == (0, 0)

    mended.append(True)
    world.run_until(lambda: job.status in JOB_TABLE.terminal, 65.0)
    assert job.status is JobState.SUCCEEDED
