"""An agent that is not heard is lost when its kernels are gone for certain, and no sooner."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from proving.hollow.supervisor import Run
from tests.control.driven_agent import DrivenAgent
from tests.control.world import World

from muster.agent.supervisor.supervisor import LEASE_GRACE_MAX_S
from muster.control.group.requests import GroupRequests
from muster.core.resources import Resources
from muster.core.specs import JobSpec, ScalingGroup
from muster.core.states import AgentStatus, JobState
from muster.store.records import Agent
from muster.wire.messages import Heartbeat, Hello, Occupied, Overtaken

SILENCE_S = 5.0
LEASE_S = 30.0
DAY_S = 86400.0
LONG = JobSpec.model_validate({"name": "long", "command": ["train"], "tasks": 1})


def group(**fields: object) -> ScalingGroup:
    spec = {"name": "default", "agent_silence": SILENCE_S, "kernel_lease": LEASE_S, **fields}
    return ScalingGroup.model_validate(spec)


@contextmanager
def running_world(path: Path, **fields: object) -> Iterator[tuple[World, DrivenAgent, Agent]]:
    """A world whose agent ``a`` runs a task without an end."""
    world = World(
        path,
        {"a": Resources(cpu_milli=1000)},
        group=group(**fields),
        behaviour=lambda start: Run(seconds=math.inf),
    )
    world.submit(LONG)
    agent = world.agent("a")
    world.run_until(lambda: bool(agent.running))
    try:
        yield world, agent, world.plane.live.agents[agent.id]
    finally:
        world.close()


def apply(world: World, **fields: object) -> None:
    world.ask(lambda work, parts: parts[GroupRequests].put_group(work, group(**fields)))


def silent_until_lost(world: World, agent: DrivenAgent) -> float:
    """For how long the agent was not heard when it was declared lost, in seconds."""
    agent.online = False
    since = world.clock.now()
    while world.plane.live.agents[agent.id].status is not AgentStatus.LOST:
        assert world.clock.now() - since < 1000.0
        world.run(0.5)
        if world.plane.live.agents[agent.id].status is AgentStatus.LOST:
            assert not agent.running
    return world.clock.now() - since


def test_agent_is_lost_only_after_its_lease_and_the_grace_that_its_kernels_may_have(
    tmp_path: Path,
) -> None:
    with running_world(tmp_path) as (world, agent, _):
        for kernel in agent.running.values():
            kernel.run = replace(kernel.run, stubborn=True)
        assert silent_until_lost(world, agent) > LEASE_S + LEASE_GRACE_MAX_S


def test_lease_made_shorter_while_an_agent_cannot_hear_it_is_waited_for_as_it_was_granted(
    tmp_path: Path,
) -> None:
    with running_world(tmp_path) as (world, agent, _):
        agent.online = False
        apply(world, kernel_lease=1.0)
        assert silent_until_lost(world, agent) > LEASE_S


def test_shorter_lease_that_is_granted_and_never_heard_of_ends_nothing_early(
    tmp_path: Path,
) -> None:
    with running_world(tmp_path) as (world, agent, _):
        apply(world, kernel_lease=1.0)
        for _ in range(5):
            world.clock.advance(1.0)
            assert world.leases.renew(agent.id, agent.heartbeat()) is not None  # the answer is lost
            world.settle()
        assert silent_until_lost(world, agent) > LEASE_S - 5.0 + LEASE_GRACE_MAX_S


def test_lease_made_shorter_takes_effect_once_the_agent_says_that_it_counts_with_it(
    tmp_path: Path,
) -> None:
    with running_world(tmp_path) as (world, agent, record):
        apply(world, kernel_lease=1.0)
        world.beat(agent)
        assert agent.supervisor.lease_end_s == agent.machine.boot_s + 1.0
        world.run(2 * SILENCE_S)
        assert record.lease_s == 1.0
        assert silent_until_lost(world, agent) < LEASE_S


def test_lease_made_shorter_before_a_restart_is_waited_for_as_it_was_granted(
    tmp_path: Path,
) -> None:
    with running_world(tmp_path) as (world, agent, _):
        agent.online = False
        apply(world, kernel_lease=1.0)
        world.restart_controller()
        assert silent_until_lost(world, agent) > LEASE_S - 1.0


def test_longer_lease_is_stored_before_it_is_granted(tmp_path: Path) -> None:
    with running_world(tmp_path) as (world, agent, _):
        apply(world, kernel_lease=100.0)
        world.beat(agent)
        agent.online = False
        world.restart_controller()
        assert silent_until_lost(world, agent) > 100.0 - 1.0


def test_silence_made_shorter_does_not_take_agents_for_silent_that_have_not_learned_it(
    tmp_path: Path,
) -> None:
    with running_world(tmp_path, agent_silence=30.0) as (world, _, record):
        apply(world, agent_silence=0.3)
        world.clock.advance(5.0)
        world.settle()
        assert record.status is AgentStatus.ALIVE


def test_controller_that_was_busy_for_long_judges_by_what_was_heard_meanwhile(
    tmp_path: Path,
) -> None:
    with running_world(tmp_path) as (world, agent, record):
        for _ in range(100):  # control does nothing, the book answers
            world.clock.advance(SILENCE_S)
            world.beat(agent)
            agent.tick()
        world.settle()
        assert record.status is AgentStatus.ALIVE
        assert agent.running


def test_renewal_that_was_read_late_counts_from_when_the_agent_asked(tmp_path: Path) -> None:
    with running_world(tmp_path) as (world, agent, _):
        heartbeat = agent.heartbeat()
        renewal = world.leases.renew(agent.id, heartbeat)
        assert renewal is not None
        world.clock.advance(LEASE_S - 1.0)
        agent.hear(renewal)
        assert agent.supervisor.lease_end_s == heartbeat.sent_s + LEASE_S
        assert silent_until_lost(world, agent) > 1.0 + LEASE_GRACE_MAX_S


def test_work_of_a_restarted_controller_is_waited_for_a_whole_lease_from_its_start(
    tmp_path: Path,
) -> None:
    with running_world(tmp_path) as (world, agent, _):
        agent.online = False
        world.restart_controller(away_s=2 * LEASE_S)
        assert silent_until_lost(world, agent) > LEASE_S


# Agents on the controller's own machine


def test_agent_beside_the_controller_keeps_its_work_however_long_there_is_no_controller(
    tmp_path: Path,
) -> None:
    with running_world(tmp_path, kernel_lease=None) as (world, agent, _):
        world.boot_id = agent.machine.boot_id
        world.restart_controller()
        assert agent.supervisor.lease_end_s == math.inf
        started = list(agent.starts)
        world.restart_controller(away_s=30 * DAY_S)
        job = next(iter(world.plane.live.jobs.values()))
        world.run(60.0)
        assert (job.status, agent.starts) == (JobState.RUNNING, started)


def test_agent_beside_the_controller_is_not_lost_while_it_may_come_back(tmp_path: Path) -> None:
    with running_world(tmp_path, kernel_lease=None) as (world, agent, _):
        world.boot_id = agent.machine.boot_id
        world.restart_controller()
        agent.online = False
        world.run(3600.0, step_s=60.0)
        world.restart_controller(away_s=30 * DAY_S)
        world.run(3600.0, step_s=60.0)
        assert world.plane.live.agents[agent.id].status is AgentStatus.UNREACHABLE
        world.connect(agent)
        assert world.plane.live.agents[agent.id].status is AgentStatus.ALIVE
        assert len(agent.starts) == 1


@contextmanager
def beside_the_controller(path: Path) -> Iterator[tuple[World, DrivenAgent]]:
    """As ``running_world``, on the controller's own machine and without an end of the lease."""
    with running_world(path, kernel_lease=None) as (world, agent, _):
        world.boot_id, world.machine = agent.machine.boot_id, "machine-1"
        world.restart_controller()
        assert agent.supervisor.lease_end_s == math.inf
        yield world, agent


def test_agent_that_is_being_started_is_waited_for_though_its_kernels_are_proven_gone(
    tmp_path: Path,
) -> None:
    """Its supervisor's journal may tell how they ended."""
    with running_world(tmp_path) as (world, agent, _):
        world.leases.expect([agent.id], 60.0)
        world.leases.end(agent.id)
        assert 60.0 <= silent_until_lost(world, agent) < 62.0


def test_agent_that_was_expected_and_heard_is_waited_for_no_longer_than_others(
    tmp_path: Path,
) -> None:
    with running_world(tmp_path) as (world, agent, _):
        world.leases.expect([agent.id], 1000.0)
        world.run(10.0)
        assert silent_until_lost(world, agent) < 2 * LEASE_S


def test_agent_beside_the_controller_is_lost_once_their_machine_has_rebooted(
    tmp_path: Path,
) -> None:
    with beside_the_controller(tmp_path) as (world, agent):
        agent.online = False
        world.boot_id = "boot-2"
        world.restart_controller()
        world.run(2 * SILENCE_S)
        assert world.plane.live.agents[agent.id].status is AgentStatus.LOST
        assert not world.plane.live.ledger


def test_agent_of_a_machine_that_rebooted_is_let_in_at_once_though_its_time_was_set_back(
    tmp_path: Path,
) -> None:
    with beside_the_controller(tmp_path) as (world, agent):
        agent.reboot()
        world.boot_id = agent.machine.boot_id
        agent.machine.booted_at -= DAY_S
        world.restart_controller()
        assert world.plane.live.agents[agent.id].connected
        world.run(1.0)
        assert len(agent.starts) == 2


@pytest.mark.parametrize("machine", ["machine-2", ""])
def test_controller_that_moved_to_another_machine_takes_no_agent_for_gone(
    tmp_path: Path, machine: str
) -> None:
    with beside_the_controller(tmp_path) as (world, agent):
        agent.online = False
        world.boot_id, world.machine = "boot-2", machine
        for _ in range(2):
            world.restart_controller()
            world.run(2 * SILENCE_S)
        assert world.plane.live.agents[agent.id].status is AgentStatus.UNREACHABLE
        assert agent.running


def test_machine_on_the_controllers_own_has_a_lease_without_an_end_until_it_reboots(
    tmp_path: Path,
) -> None:
    with running_world(tmp_path, kernel_lease=None) as (world, agent, _):
        agent.reboot()
        agent.machine.boot_id = "boot-of-all/first"
        world.boot_id, world.machine = "boot-of-all", "machine-1"
        for _ in range(2):
            world.restart_controller()
            world.run(1.0)
        assert agent.supervisor.lease_end_s == math.inf
        assert len(world.plane.live.ledger) == 1
        agent.online = False
        world.run(2 * SILENCE_S)
        world.restart_controller(away_s=DAY_S)
        world.run(2 * SILENCE_S)
        assert world.plane.live.agents[agent.id].status is AgentStatus.UNREACHABLE
        assert len(world.plane.live.ledger) == 1
        starts = len(agent.starts)
        agent.reboot()
        agent.machine.boot_id = "boot-of-all/second"
        world.connect(agent)
        world.run(1.0)
        assert len(agent.starts) == starts + 1, "what ran in the former boot is proven gone"


def test_lease_without_an_end_that_is_given_one_ends_where_the_agent_has_learned_it(
    tmp_path: Path,
) -> None:
    with running_world(tmp_path, kernel_lease=None) as (world, agent, record):
        world.boot_id = agent.machine.boot_id
        world.restart_controller()
        record = world.plane.live.agents[agent.id]
        assert record.lease_s == math.inf
        apply(world)
        world.run(2 * SILENCE_S)
        assert record.lease_s == LEASE_S
        assert silent_until_lost(world, agent) < 3 * LEASE_S


def test_agent_elsewhere_has_a_lease_that_ends(tmp_path: Path) -> None:
    with running_world(tmp_path, kernel_lease=None) as (world, agent, _):
        assert silent_until_lost(world, agent) > 300.0


# Who is the agent


def test_hello_of_an_older_stream_that_comes_late_is_not_believed(tmp_path: Path) -> None:
    with running_world(tmp_path) as (world, agent, _):
        before = replace(agent.hello(), kernels=())
        world.run(1.0)
        world.connect(agent)
        with pytest.raises(Overtaken):
            world.leases.admit(before, beside=False)


def test_hello_of_an_older_boot_that_comes_late_is_not_believed(tmp_path: Path) -> None:
    with running_world(tmp_path) as (world, agent, _):
        before = agent.hello()
        world.run(1.0)
        agent.reboot()
        world.connect(agent)
        with pytest.raises(Overtaken):
            world.leases.admit(before, beside=False)


def test_rebooted_machine_is_let_in_at_once(tmp_path: Path) -> None:
    with running_world(tmp_path) as (world, agent, _):
        agent.reboot()
        world.connect(agent)
        world.run(1.0)
        assert len(agent.starts) == 2


@pytest.mark.parametrize("restarts", [1, 2])
def test_machine_that_rebooted_before_silence_was_made_shorter_is_let_in_by_a_new_controller(
    tmp_path: Path, restarts: int
) -> None:
    with running_world(tmp_path, agent_silence=15.0) as (world, agent, _):
        world.run(5.0)
        agent.online = False
        world.clock.advance(6.0)
        agent.reboot()
        world.clock.advance(2.0)
        for _ in range(restarts):
            apply(world, agent_silence=1.0)  # the agent, which cannot know, stays ALIVE
            world.restart_controller()
        world.connect(agent)
        world.run(1.0)
        assert len(agent.starts) == 2


def test_agent_that_was_started_again_is_let_in_at_once(tmp_path: Path) -> None:
    with running_world(tmp_path) as (world, agent, record):
        agent.renewed_s = 0.0
        world.connect(agent)
        assert record.connected


@pytest.mark.parametrize("elsewhere", ["machine", "directory"])
def test_copy_of_a_credential_is_refused_until_the_leases_of_the_first_have_ended(
    tmp_path: Path, elsewhere: str
) -> None:
    def copy(hello: Hello) -> Hello:
        if elsewhere == "machine":
            return replace(hello, boot_id="another")
        return replace(hello, instance="another")

    with running_world(tmp_path) as (world, agent, _):
        with pytest.raises(Occupied, match="stop one of the two"):
            world.leases.admit(copy(agent.hello()), beside=False)
        agent.online = False
        world.run(LEASE_S - 1.0)  # silent for long, and its kernels run
        assert agent.running
        with pytest.raises(Occupied):
            world.leases.admit(copy(agent.hello()), beside=False)
        world.run(LEASE_GRACE_MAX_S * 2)
        world.leases.admit(copy(agent.hello()), beside=False)


def test_agent_whose_place_another_took_gets_no_renewal_for_what_it_asked_before(
    tmp_path: Path,
) -> None:
    with running_world(tmp_path) as (world, agent, record):
        agent.online = False
        world.run(2 * LEASE_S)
        assert record.status is AgentStatus.LOST
        assert world.leases.renew(agent.id, Heartbeat(agent.machine.boot_s)) is None


def test_offset_of_an_agents_clock_is_measured(tmp_path: Path) -> None:
    with running_world(tmp_path) as (world, agent, record):
        for delay_s in (0.5, 0.0, 3.0):
            beat = Heartbeat(agent.machine.boot_s, agent.renewed_s, world.clock.now() - 40.0)
            world.clock.advance(delay_s)
            world.leases.renew(agent.id, beat)
        for _ in range(8):
            world.leases.renew(
                agent.id, Heartbeat(agent.machine.boot_s, agent.renewed_s, world.clock.now() - 40.0)
            )
        assert world.plane.live.agents[agent.id] is record
        assert record.clock_offset_s == pytest.approx(40.0)
