"""A gang of which a member cannot start: what becomes of the others, and of all of it."""

from collections import Counter

import pytest
from proving.hollow.supervisor import Behaviour, Run
from tests.control.conftest import MakeWorld, under
from tests.control.driven_agent import attempt, kernel_index
from tests.control.world import World
from tests.databases import ON_BOTH

from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.core.states import (
    JOB_TABLE,
    AgentStatus,
    JobState,
    KernelStatus,
    SessionStatus,
    TaskState,
)
from muster.wire.messages import Start

pytestmark = ON_BOTH

ONE_CPU = Resources(cpu_milli=1000, memory_bytes=2**30)
GANG = JobSpec(command=["gang"], tasks=2, coscheduled=True)


@pytest.fixture
def make_world(worlds: MakeWorld) -> MakeWorld:
    def make(behaviour: Behaviour, **policy: float) -> World:
        return worlds(dict.fromkeys("abc", ONE_CPU), group=under(**policy), behaviour=behaviour)

    return make


def test_gang_of_which_one_ended_before_another_could_start_begins_anew_as_a_whole(
    make_world: MakeWorld,
) -> None:
    ran: Counter[tuple[int, int]] = Counter()

    def behaviour(start: Start) -> Run:
        if kernel_index(start) == 1 and attempt(start) == 1:
            return Run(create_failure=ReasonCode.DISK_FULL, fails_at_go=True)
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
        lambda start: (
            Run(create_failure=ReasonCode.DISK_FULL, fails_at_go=True)
            if kernel_index(start)
            else Run(0.2)
        )
    )
    job = world.submit(GANG.model_copy(update={"max_retries_preemption": 2}))
    world.run_until(lambda: job.status in JOB_TABLE.terminal)

    assert job.status is JobState.FAILED
    assert job.counts[TaskState.WORKER_FAILED] == 1
    assert job.counts[TaskState.SUCCEEDED] == 1, "what had ended well stays so"
    assert not world.plane.live.ledger


@pytest.mark.parametrize("phase", [SessionStatus.PREPARING, SessionStatus.CREATING])
@pytest.mark.parametrize("reboots", [True, False])
def test_gang_that_waits_to_try_again_when_a_machine_is_lost_begins_anew_at_once(
    make_world: MakeWorld, phase: SessionStatus, reboots: bool
) -> None:
    broken = [ReasonCode.DISK_FULL]

    def behaviour(start: Start) -> Run:
        if kernel_index(start) == 0 and broken:
            return Run(create_failure=broken.pop())
        return Run(5.0)

    backoff_s = 60.0
    world = make_world(behaviour, retry_backoff=backoff_s, agent_silence=5.0, kernel_lease=10.0)
    ports = 0
    if phase is SessionStatus.PREPARING:
        ports = 1
        world.agent("a").prepare_failures.append(broken.pop())
    job = world.submit(GANG.model_copy(update={"ports": ports}))
    session = world.only_session()
    waiting, running = session.kernels
    assert session.status is phase
    assert waiting.failure is not None, "it is tried again after the backoff"
    assert session.retry_at == world.clock.now() + backoff_s
    assert running.agent_id is not None
    lost = world.agents[running.agent_id]
    if reboots:
        lost.reboot()
        world.connect(lost)
    else:
        lost.online = False
        world.run_until(
            lambda: world.plane.live.agents[lost.id].status is AgentStatus.LOST, backoff_s / 2
        )
    deadline = world.clock.now() + 30.0
    while job.status in JOB_TABLE.live and world.clock.now() < deadline:
        world.run(0.5)
        assert holds_what_it_runs(world)

    assert job.status is JobState.SUCCEEDED
    assert job.counts[TaskState.SUCCEEDED] == 2
    assert not world.plane.live.ledger


def holds_what_it_runs(world: World) -> bool:
    """Whether each kernel that runs has its row in the ledger, by the controller's own account."""
    return all(
        (kernel.id, kernel.generation) in world.plane.live.ledger
        for session in world.plane.live.sessions.values()
        if session.status is SessionStatus.RUNNING
        for kernel in session.kernels
        if kernel.status is KernelStatus.RUNNING
    )


def test_gang_of_one_task_finds_the_variables_of_a_gang(make_world: MakeWorld) -> None:
    found: list[dict[str, str]] = []

    def behaviour(start: Start) -> Run:
        found.append({**start.template.env, **start.env})
        return Run(1.0)

    make_world(behaviour).submit(GANG.model_copy(update={"tasks": 1}))
    (env,) = found
    assert (env["RANK"], env["WORLD_SIZE"], env["LOCAL_RANK"]) == ("0", "1", "0")
    assert env["MASTER_ADDR"]
    assert env["MASTER_PORT"].isdigit()
