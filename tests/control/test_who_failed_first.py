"""The member of a gang that failed first is found, though machines' clocks disagree."""

import math

import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import select
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import DrivenAgent, attempt, kernel_index
from tests.control.world import World

from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, JobState
from muster.store import schema
from muster.store.records import Job
from muster.wire.messages import Start

GANG = {"command": ["gang"], "tasks": 2, "coscheduled": True, "grace": 1}


def gang(**more: object) -> JobSpec:
    return JobSpec.model_validate(GANG | more)


def charges(world: World, job: Job) -> list[tuple[int, int]]:
    """Failures and preemptions that each task was charged."""
    tasks = schema.tasks.c
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        rows = connection.execute(
            select(tasks.failure_count, tasks.preemption_count)
            .where(tasks.job_id == job.id)
            .order_by(tasks.idx)
        )
        return [(row.failure_count, row.preemption_count) for row in rows]


GIVEN_UP = (0, JobSpec(command=["x"]).max_retries_preemption + 1)
"""The charges of a task that ended because another one of its gang failed for good."""


def set_clock(world: World, agent: DrivenAgent, ahead_s: float) -> None:
    agent.machine.clock_ahead_s = ahead_s
    world.connect(agent)
    world.run(10.0)  # what was measured before is forgotten


def agent_of(world: World, index: int) -> DrivenAgent:
    """The agent of the gang's kernel of that index."""
    session = world.only_session()
    agent_id = session.kernels[index].agent_id
    assert agent_id is not None
    return world.agents[agent_id]


@pytest.mark.parametrize("ahead_s", [-60.0, 60.0])
@pytest.mark.parametrize("culprit", [0, 1])
def test_member_that_failed_first_is_charged_though_clocks_are_a_minute_apart(
    group_world: MakeWorld, ahead_s: float, culprit: int
) -> None:
    # The second to fail does so on the connection that broke, and is heard in the same moment.
    world = group_world(
        {"a": 1, "b": 1},
        lambda start: Run(10.0 if kernel_index(start) == culprit else 18.0, exit_code=1),
    )
    set_clock(world, world.agent("b"), ahead_s)
    job = world.submit(gang())
    for name in "ab":
        world.agent(name).online = False
    world.run(20.0)
    for name in "ab":
        world.connect(world.agent(name))
    world.run_until(lambda: job.status in JOB_TABLE.terminal)
    assert charges(world, job) == [(1, 0), GIVEN_UP][:: -1 if culprit else 1]


def test_times_of_kernels_are_by_the_controllers_clock(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, lambda start: Run(5.0))
    set_clock(world, world.agent("a"), 3600.0)
    began = world.clock.now()
    job = world.submit(JobSpec(command=["x"]))
    world.run_until(lambda: job.status in JOB_TABLE.terminal)
    kernels = schema.kernels.c
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        row = connection.execute(select(kernels.started_at, kernels.ended_at)).one()
    assert row.started_at == pytest.approx(began, abs=0.6)
    assert row.ended_at - row.started_at == pytest.approx(5.0, abs=0.6)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("silent_s", [1.0, 12.0])
def test_peer_that_fails_on_the_connection_to_a_machine_that_reboots_is_not_blamed(
    group_world: MakeWorld, restart: bool, silent_s: float
) -> None:
    def behaviour(start: Start) -> Run:
        first = attempt(start) == 1
        return Run(
            1e9 if first else 2.0,
            stubborn=first and kernel_index(start) == 0,
            outlives_kill_s=math.inf,
        )

    world = group_world({"a": 1, "b": 1}, behaviour, agent_silence=60.0)
    id_ = world.submit(gang()).id
    world.run(20.0)
    lost, peer = agent_of(world, 0), agent_of(world, 1)
    lost.online = False  # its power fails
    lost.reboot()
    world.run(silent_s)
    for key in peer.running:  # the connection has broken
        peer.supervisor.end_process(key, 1)
    world.run(0.5)
    if restart:
        lost.online = True
        world.restart_controller()
    else:
        world.run(5.0)
        world.connect(lost)
    job = world.plane.live.jobs[id_]
    world.run_until(lambda: job.status in JOB_TABLE.terminal, 100.0)
    assert job.status is JobState.SUCCEEDED
    assert charges(world, job) == [(0, 1), (0, 0)]


def test_task_that_failed_long_before_its_peers_machine_was_lost_is_charged(
    group_world: MakeWorld,
) -> None:
    def behaviour(start: Start) -> Run:
        if kernel_index(start) == 1:
            return Run(5.0, exit_code=1)
        return Run(1e9, stubborn=True, outlives_kill_s=math.inf)

    world = group_world({"a": 1, "b": 1}, behaviour, terminate_timeout=600.0)
    job = world.submit(gang())
    world.run(5.5)
    world.run(20.0)  # it is told to stop, and does not
    lost = agent_of(world, 0)
    lost.reboot()
    world.connect(lost)
    world.run_until(lambda: job.status in JOB_TABLE.terminal, 100.0)
    assert job.status is JobState.FAILED
    assert charges(world, job) == [GIVEN_UP, (1, 0)]
