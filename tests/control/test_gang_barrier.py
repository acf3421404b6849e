"""A gang runs whole or not at all: its kernels wait at a barrier until all of them can run."""

import math
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from proving.hollow.supervisor import Behaviour, Run
from tests.control.conftest import MakeWorld, under
from tests.control.driven_agent import DrivenAgent, attempt, kernel_index
from tests.control.world import ADA, World, state

from muster.control.job.explanation import explain_job
from muster.control.job.requests import JobRequests
from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, JobState, SessionStatus
from muster.store.records import Job
from muster.wire.messages import Command, Commands, ControllerMessage, Go, Start, Stop

ONE_CPU = Resources(cpu_milli=1000, memory_bytes=2**30)
GANG = JobSpec(command=["gang"], tasks=2, coscheduled=True)


@pytest.fixture
def make_world(worlds: MakeWorld) -> MakeWorld:
    def make(behaviour: Behaviour, agents: str = "ab", **policy: object) -> World:
        return worlds(dict.fromkeys(agents, ONE_CPU), group=under(**policy), behaviour=behaviour)

    return make


def running(world: World) -> int:
    return sum(len(agent.running) for agent in world.agents.values())


def finish(world: World, job: Job, limit_s: float = 200.0) -> None:
    world.run_until(lambda: job.status in JOB_TABLE.terminal, limit_s)


def test_no_kernel_of_a_gang_runs_while_one_supervisor_stalls(make_world: MakeWorld) -> None:
    ran: Counter[tuple[int, int]] = Counter()

    def behaviour(start: Start) -> Run:
        ran[attempt(start), kernel_index(start)] += 1
        return Run(5.0)

    world = make_world(behaviour, "abc", create_timeout=20.0)
    stalled = world.agent("b")
    stalled.supervisor.freeze()
    job = world.submit(GANG)
    for _ in range(38):
        world.run(0.5)
        assert not running(world)
    assert world.agent("a").held, "it is ready, and waits"
    why = explain_job(world.plane.live, world.cluster, job.id, world.clock.now())
    (told,) = (each.sentence for each in why.reasons if each.code == ReasonCode.AT_BARRIER)
    assert told.startswith("1 of 2 kernels of the gang are ready")
    assert told.endswith("agent b has not said so yet")
    stalled.supervisor.thaw()
    finish(world, job)
    assert job.status is JobState.SUCCEEDED
    assert {key[0] for key in ran} == {1}, "nothing had run, so it is the same attempt"


def test_gang_starts_when_its_last_kernel_is_ready(make_world: MakeWorld) -> None:
    world = make_world(lambda start: Run(5.0, creating_s=3.0 * kernel_index(start)))
    world.submit(GANG)
    session = world.only_session()
    world.run(2.5)
    assert (running(world), session.status) == (0, SessionStatus.CREATING)
    world.run(0.5)
    assert (running(world), session.status) == (2, SessionStatus.RUNNING)


@pytest.mark.parametrize("moment", ["held", "open"])
def test_barrier_survives_a_restart_of_the_controller(make_world: MakeWorld, moment: str) -> None:
    world = make_world(lambda start: Run(5.0, creating_s=2.0 * kernel_index(start)))
    id_ = world.submit(GANG).id
    world.run(1.0)
    if moment == "open":  # it is committed, and nobody hears it
        world.clock.advance(1.5)
        for agent in world.agents.values():
            agent.tick()
        world._deliver()
        while world.only_session().barrier_opened_at is None:
            world.plane.step()
    assert not running(world)
    world.restart_controller()
    assert not running(world) or moment == "open"
    job = world.plane.live.jobs[id_]
    finish(world, job)
    assert job.status is JobState.SUCCEEDED
    assert {len(agent.starts) for agent in world.agents.values()} == {1}


def lose_go(agent: DrivenAgent) -> None:
    """The agent does not hear the first time that it may go."""
    receive = agent.hear

    def deaf(message: ControllerMessage) -> None:
        if isinstance(message, Commands) and any(isinstance(c, Go) for c in message.commands):
            message = Commands(tuple(c for c in message.commands if not isinstance(c, Go)))
            agent.hear = receive  # type: ignore[method-assign]
        receive(message)

    agent.hear = deaf  # type: ignore[method-assign]


def test_go_that_was_lost_is_said_again_at_hello(make_world: MakeWorld) -> None:
    world = make_world(lambda start: Run(30.0), create_timeout=60.0)
    agent = world.agent("b")
    lose_go(agent)
    job = world.submit(GANG)
    world.run(5.0)
    assert running(world) == 1
    world.connect(agent)
    assert running(world) == 2
    finish(world, job)
    assert (job.status, len(world.agent("a").starts)) == (JobState.SUCCEEDED, 1)


def test_attempt_of_which_one_ran_while_another_never_did_is_not_run_again(
    make_world: MakeWorld,
) -> None:
    ran: Counter[tuple[int, int]] = Counter()

    def behaviour(start: Start) -> Run:
        ran[attempt(start), kernel_index(start)] += 1
        return Run(40.0)

    world = make_world(behaviour, "ab", create_timeout=10.0)
    agent = world.agent("b")
    lose_go(agent)
    job = world.submit(GANG)
    world.run(5.0)
    assert running(world) == 1
    finish(world, job)
    assert job.status is JobState.SUCCEEDED
    assert max(ran.values()) == 1, "no attempt was begun twice"
    assert {number for number, _ in ran} == {1, 2}
    tasks = world.store.engine
    with tasks.connect().execution_options(readonly=True) as connection:
        charged = connection.exec_driver_sql(
            "SELECT failure_count, preemption_count FROM tasks ORDER BY idx"
        ).fetchall()
    assert [tuple(row) for row in charged] in ([(0, 0), (0, 1)], [(0, 1), (0, 0)])


@pytest.mark.parametrize("barrier", ["closed", "open"])
def test_machine_that_is_lost_before_all_run_ends_the_wait_at_once(
    make_world: MakeWorld, barrier: str
) -> None:
    slow = 1e9 if barrier == "closed" else 0.0
    world = make_world(
        lambda start: Run(5.0, creating_s=slow if attempt(start) == 1 else 0.0),
        "abc",
        create_timeout=1000.0,
        terminate_timeout=5.0,
    )
    world.behaviour = lambda start: Run(
        5.0, creating_s=slow if kernel_index(start) == 1 and not done else 0.0
    )
    done: list[bool] = []
    if barrier == "open":
        lose_go(world.agent("b"))
    job = world.submit(GANG)
    world.run(2.0)
    done.append(True)
    lost = world.agent("b")
    lost.reboot()
    world.connect(lost)
    finish(world, job, 60.0)
    assert job.status is JobState.SUCCEEDED


def test_gang_that_is_cancelled_at_the_barrier_never_runs(make_world: MakeWorld) -> None:
    world = make_world(lambda start: Run(5.0, creating_s=1e9 * kernel_index(start)))
    job = world.submit(GANG)
    world.run(1.0)
    world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, job.id))
    world.run(5.0)
    assert not world.plane.live.ledger
    assert not any(agent.held or agent.running for agent in world.agents.values())


def test_kernel_by_itself_waits_at_no_barrier(tmp_path: Path) -> None:
    with closing(World(tmp_path, {"a": ONE_CPU})) as world:
        sent: list[Start] = []

        def behaviour(start: Start) -> Run:
            sent.append(start)
            return Run(1.0)

        world.behaviour = behaviour
        finish(world, world.submit(JobSpec(command=["x"])))
        assert [start.hold for start in sent] == [False]


def test_member_that_cannot_be_created_is_tried_again_while_the_others_wait(
    make_world: MakeWorld,
) -> None:
    failures = [ReasonCode.DISK_FULL] * 2

    def behaviour(start: Start) -> Run:
        if kernel_index(start) == 1 and failures:
            return Run(create_failure=failures.pop())
        return Run(5.0)

    world = make_world(behaviour, retry_backoff=1.0)
    job = world.submit(GANG)
    world.run(2.0)
    assert not running(world)
    finish(world, job)
    assert {len(agent.starts) for agent in world.agents.values()} == {1}


def test_gang_that_was_let_go_ends_with_a_kernel_that_was_never_begun(
    make_world: MakeWorld,
) -> None:
    world = make_world(lambda start: Run(math.inf), terminate_timeout=500.0)
    agent, told = world.agent("b"), []
    obey = agent.obey

    def note(command: Command) -> None:
        told.append(type(command))
        if not isinstance(command, Go):
            obey(command)

    agent.obey = note  # type: ignore[method-assign]
    job = world.submit(GANG.model_copy(update={"max_retries_preemption": 0}))
    assert world.only_session().barrier_opened_at is not None
    (key,) = agent.held
    agent.supervisor.stop(Stop(*key, 0.0, "its lease has ended, say"))
    finish(world, job, 30.0)
    assert state(job) is JobState.FAILED
    assert not running(world)
    assert told == [Start, Go], "it is known to have ended"
