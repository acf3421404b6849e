"""A gang whose members could not all be started, though one was and has ended already."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.control.world import Behaviour, Run, World, attempt, kernel_index

from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, JobState, TaskState
from muster.wire.messages import Start

ONE_CPU = Resources(cpu_milli=1000, memory_bytes=2**30)
GANG = JobSpec(command=["gang"], tasks=2, coscheduled=True)

MakeWorld = Callable[[Behaviour], World]


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[MakeWorld]:
    worlds: list[World] = []

    def make(behaviour: Behaviour) -> World:
        worlds.append(World(tmp_path, dict.fromkeys("abc", ONE_CPU), behaviour=behaviour))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


def test_gang_of_which_one_ended_before_another_could_start_begins_anew_as_a_whole(
    make_world: MakeWorld,
) -> None:
    ran: Counter[tuple[int, int]] = Counter()

    def behaviour(start: Start) -> Run:
        if kernel_index(start) == 1 and attempt(start) == 1:
            return Run(create_failure=ReasonCode.DISK_FULL)
        ran[attempt(start), kernel_index(start)] += 1
        return Run(0.2)

    world = make_world(behaviour)
    job = world.submit(GANG)
    preempted: dict[int, int] = {}
    while job.status not in JOB_TABLE.terminal:
        world.run(0.5)
        preempted |= {task.index: task.preemption_count for task in job.tasks.values()}

    assert job.status is JobState.SUCCEEDED
    assert ran == {(1, 0): 1, (2, 0): 1, (2, 1): 1}
    assert preempted == {0: 0, 1: 1}, "only the one that could not start is charged"
    assert not world.plane.live.ledger


def test_gang_of_which_one_ended_and_the_other_lost_its_machine_begins_anew_as_a_whole(
    make_world: MakeWorld,
) -> None:
    world = make_world(lambda start: Run(0.2))
    late = world.agent("b")
    world.agent("c").online = False
    heard, late.behaviour = late.behaviour, lambda start: Run(create_failure=ReasonCode.DISK_FULL)
    job = world.submit(GANG)
    world.run(0.5)
    late.reboot()
    late.behaviour = heard
    world.connect(late)
    world.run_until(lambda: job.status in JOB_TABLE.terminal)

    assert job.status is JobState.SUCCEEDED
    assert job.counts[TaskState.SUCCEEDED] == 2
    assert not world.plane.live.ledger


def test_gang_of_which_one_runs_when_another_cannot_start_is_stopped_and_placed_elsewhere(
    make_world: MakeWorld,
) -> None:
    world = make_world(lambda start: Run(5.0))
    world.agent("b").behaviour = lambda start: Run(create_failure=ReasonCode.DISK_FULL)
    job = world.submit(GANG)
    world.run_until(lambda: job.status in JOB_TABLE.terminal)

    assert job.status is JobState.SUCCEEDED
    generations = [[generation for _, generation in world.agent(name).starts] for name in "abc"]
    assert generations == [[0, 1], [], [1]]
    assert not world.plane.live.ledger


def test_gang_that_can_never_start_as_a_whole_ends_when_its_budget_is_spent(
    make_world: MakeWorld,
) -> None:
    world = make_world(
        lambda start: Run(create_failure=ReasonCode.DISK_FULL) if kernel_index(start) else Run(0.2)
    )
    job = world.submit(GANG.model_copy(update={"max_retries_preemption": 2}))
    world.run_until(lambda: job.status in JOB_TABLE.terminal)

    assert job.status is JobState.FAILED
    assert job.counts[TaskState.WORKER_FAILED] == 1
    assert job.counts[TaskState.SUCCEEDED] == 1, "what had ended well stays so"
    assert not world.plane.live.ledger
