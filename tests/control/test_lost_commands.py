"""Commands that never arrived: the agent's next Hello makes up for them."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from proving.hollow.supervisor import Behaviour, Run
from sqlalchemy import select
from tests.control.conftest import MakeWorld, under
from tests.control.driven_agent import DrivenAgent, attempt, task_index
from tests.control.world import ADA, World

from muster.control.job.requests import JobRequests
from muster.core.ids import JobId
from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.core.states import JobState
from muster.store import schema
from muster.wire.messages import (
    Command,
    Commands,
    HeldKernel,
    HeldStatus,
    KernelReport,
    ReportKind,
    Reports,
    Start,
    Stop,
)

ONE_CPU = Resources(cpu_milli=1000, memory_bytes=2**30)


@pytest.fixture
def make_world(worlds: MakeWorld) -> MakeWorld:
    def make(agents: Sequence[str], backlog_window_s: float, behaviour: Behaviour) -> World:
        group = under(backlog_window=backlog_window_s, agent_silence=60.0)
        return worlds(dict.fromkeys(agents, ONE_CPU), group=group, behaviour=behaviour)

    return make


def noting(attempts: list[int]) -> Behaviour:
    """Endless kernels that tell which attempt each of them is."""

    def begin(start: Start) -> Run:
        attempts.append(attempt(start))
        return Run(math.inf)

    return begin


def obeyed(agent: DrivenAgent) -> list[Command]:
    """The commands that the agent gets from now on."""
    told: list[Command] = []
    obey = agent.obey

    def note(command: Command) -> None:
        told.append(command)
        obey(command)

    agent.obey = note  # type: ignore[method-assign]
    return told


def ended_well(world: World, id_: JobId) -> bool:
    """Whether the job succeeds before long, and nothing of it is left."""
    world.run_until(lambda: id_ not in world.plane.live.jobs, 60.0)
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        state = connection.scalar(select(schema.jobs.c.status).where(schema.jobs.c.id == id_))
    return state == JobState.SUCCEEDED and not world.plane.live.ledger


def test_recall_and_queued_start_that_were_lost_leave_no_task_behind(
    make_world: MakeWorld,
) -> None:
    # The tasks become shorter after a while, so that more of them are prefilled.
    world = make_world(["near", "far"], 2.0, lambda s: Run(1.0 if task_index(s) < 6 else 0.1))
    job = world.submit(JobSpec(command=["short"], tasks=40))
    world.run(1.05, 0.05)
    near, far = world.agent("near"), world.agent("far")
    far.online = False
    while near.running or far.running:
        world.clock.advance(0.1)
        near.tick()
        far.tick()
        world.beat(near)
        world.settle()
    held = [world.plane.live.kernels[id_] for id_, _ in world.plane.live.allocations_on[far.id]]
    assert any(kernel.recalled for kernel in held), "recalled, unheard"

    world.connect(far)
    assert ended_well(world, job.id)


def test_start_of_a_queued_kernel_that_was_lost_with_the_controller_is_said_again(
    make_world: MakeWorld,
) -> None:
    world = make_world(["a"], 0.25, lambda start: Run(0.2))
    job = world.submit(JobSpec(command=["short"], tasks=6))
    agent = world.agent("a")
    world.run(0.2)  # the first has ended, the second runs, two are prefilled
    world.clock.advance(0.2)
    agent.tick()
    world._deliver()
    world.plane.step()
    world.outgoing.clear()  # the fifth is to be prefilled, which the agent does not hear
    for _ in range(2):
        world.clock.advance(0.2)
        agent.tick()
    world.greet(agent)
    world.plane.step()
    world._deliver()  # now it does hear, but nothing runs there any more,
    world.plane.step()  # so it may start,
    (granted,) = [key for key, row in world.plane.live.ledger.items() if row.charged]
    assert granted in agent.queued
    world.restart_controller()  # which it does not hear

    assert ended_well(world, job.id)


def test_start_decided_before_a_machine_rebooted_reaches_no_later_boot(
    make_world: MakeWorld,
) -> None:
    attempts: list[int] = []
    world = make_world(["a"], 0.0, noting(attempts))
    agent = world.agent("a")
    agent.loses = (Start, Stop)
    world.submit(JobSpec(command=["long"]))
    agent.loses = ()
    world.greet(agent)  # it is to be told again to start; both Hellos are heard in one wake
    agent.reboot()
    world.greet(agent)
    world.run(1.0)
    assert attempts == [2]


def test_start_sent_before_control_hears_that_a_machine_rebooted_reaches_no_later_boot(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []
    world = make_world(["a"], 0.0, noting(attempts))
    agent, spec = world.agent("a"), JobSpec(command=["long"])
    monkeypatch.setattr("muster.control.inbox.INPUTS_A_WAKE", 1)  # another comes before its Hello
    world.plane.ask(lambda work, parts: parts[JobRequests].submit(work, ADA, spec), lambda *_: None)
    agent.reboot()
    world.greet(agent)
    world.run(1.0)
    assert attempts == [2]


def test_kernel_whose_stop_was_lost_has_all_of_its_grace_from_the_next_one(
    make_world: MakeWorld,
) -> None:
    world = make_world(
        ["a"], 0.0, lambda start: Run(math.inf, stubborn=True, outlives_kill_s=math.inf)
    )
    job = world.submit(JobSpec(command=["long"], grace=10.0))
    agent = world.agent("a")
    agent.online = False
    world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, job.id))
    world.run(14.0)  # a second Stop, which grants nothing, is due in a second
    told = obeyed(agent)
    world.connect(agent)
    world.run(10.0)
    assert [each.grace_s for each in told if isinstance(each, Stop)] == [10.0]


def test_kernel_that_begins_although_its_session_is_placed_anew_has_its_grace(
    worlds: MakeWorld,
) -> None:
    world = worlds({"a": ONE_CPU}, group=under(create_timeout=10.0))
    agent = world.agent("a")
    told = obeyed(agent)
    agent.loses = (Start, Stop)  # it has begun to start the kernel
    world.submit(JobSpec(command=["long"], grace=7.0))
    (key,) = world.plane.live.ledger
    world.run(11.0)
    begun = KernelReport(*key, ReportKind.STARTED, world.clock.now())
    world.desk.agent_said(agent.id, Reports(1, (begun,)))
    world.settle()
    graces = [each.grace_s for each in told if isinstance(each, Stop) and each.generation == 0]
    assert graces == [7.0]


def test_agent_is_not_told_of_a_kernel_whose_end_it_tells_beside_its_hello(
    make_world: MakeWorld,
) -> None:
    world = make_world(["a"], 0.0, lambda start: Run(0.5))
    agent = world.agent("a")
    agent.loses = (Start, Stop)
    world.submit(JobSpec(command=["short"]))  # the Start is lost
    agent.loses = ()
    (key,) = world.plane.live.ledger
    world.greet(agent)  # it does not hold the kernel
    ended = KernelReport(*key, ReportKind.ENDED, 0.0, reason=ReasonCode.NEVER_STARTED)
    world.desk.agent_said(agent.id, Reports(1, (ended,)))
    world.wake()
    commands = [each for _, each in world.outgoing if isinstance(each, Commands)]
    assert [(each.kernel, each.generation) for each in commands[0].commands] == [(key[0], 1)]


def where_the_first_start_fails(make_world: MakeWorld) -> tuple[World, list[float]]:
    """A world of one agent, and the times of the starts there, to which each start is added."""
    starts: list[float] = []

    def behaviour(start: Start) -> Run:
        starts.append(world.clock.now())
        return Run(create_failure=ReasonCode.DISK_FULL) if len(starts) == 1 else Run(1.0)

    world = make_world(["a"], 0.0, behaviour)
    return world, starts


def test_failed_start_is_tried_again_after_its_pause_though_the_agent_says_hello(
    make_world: MakeWorld,
) -> None:
    world, starts = where_the_first_start_fails(make_world)
    job = world.submit(JobSpec(command=["x"]))
    world.connect(world.agent("a"))
    assert ended_well(world, job.id)
    first, second = starts
    assert second >= first + 1.0


def test_next_try_that_was_lost_follows_the_repeated_report_of_the_failure(
    make_world: MakeWorld,
) -> None:
    world, starts = where_the_first_start_fails(make_world)
    agent = world.agent("a")
    job = world.submit(JobSpec(command=["x"]))
    (key,) = world.plane.live.ledger
    failed = KernelReport(
        *key, ReportKind.CREATE_FAILED, world.clock.now(), reason=ReasonCode.DISK_FULL
    )
    agent.online = False
    world.run(2.0)  # the next try is sent, and lost with its acknowledgement
    hello = agent.hello()
    held = HeldKernel(*key, HeldStatus.CREATE_FAILED)
    again = replace(hello, kernels=(held,))
    agent.hello = lambda: again  # type: ignore[method-assign]
    world.connect(agent)
    assert len(starts) == 1, "its report comes"
    world.desk.agent_said(agent.id, Reports(agent.acknowledged, (failed,)))
    world.settle()
    assert len(starts) == 2
    assert ended_well(world, job.id)


def test_next_try_that_follows_a_hello_is_not_sent_again_for_the_repeated_report(
    make_world: MakeWorld,
) -> None:
    world, _ = where_the_first_start_fails(make_world)
    agent = world.agent("a")
    job = world.submit(JobSpec(command=["x"]))
    (key,) = world.plane.live.ledger
    failed = KernelReport(
        *key, ReportKind.CREATE_FAILED, world.clock.now(), reason=ReasonCode.DISK_FULL
    )
    told = obeyed(agent)
    world.disconnect(agent)  # the acknowledgement is lost
    again = replace(agent.hello(), kernels=(HeldKernel(*key, HeldStatus.CREATE_FAILED),))
    agent.hello = lambda: again  # type: ignore[method-assign]
    world.clock.advance(2.0)
    agent.online = True
    world.greet(agent)  # in the wake in which the next try is due
    world.wake()
    world.desk.agent_said(agent.id, Reports(agent.acknowledged, (failed,)))
    assert ended_well(world, job.id)
    assert [each for each in told if isinstance(each, Start)] == [told[0]]
