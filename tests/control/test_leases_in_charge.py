"""Leases are renewed by a controller that knows that it is in charge, and agents without one get no
work."""

import math
from pathlib import Path

import pytest
from tests.control.test_leases import DAY_S, LEASE_S, apply, running_world, silent_until_lost

from muster.control.agent.leases import IN_CHARGE_S, LEASE_MARGIN_S
from muster.core.states import AgentStatus


def test_controller_that_cannot_tell_whether_it_is_in_charge_renews_no_lease(
    tmp_path: Path,
) -> None:
    with running_world(tmp_path) as (world, agent, _):
        world.in_charge_s = IN_CHARGE_S
        world.restart_controller()
        world.run(IN_CHARGE_S - 1.0)
        assert world.leases.renew(agent.id, agent.heartbeat()) is not None
        world.run(1.0)
        assert world.leases.renew(agent.id, agent.heartbeat()) is None
        world.leases.confirm_charge(world.clock.boot_s())
        assert world.leases.renew(agent.id, agent.heartbeat()) is not None


def test_controller_whose_machine_was_suspended_renews_no_lease_before_it_knows_its_charge(
    tmp_path: Path,
) -> None:
    """The clock of the one that takes its place went on meanwhile."""
    with running_world(tmp_path) as (world, agent, _):
        world.in_charge_s = IN_CHARGE_S
        world.restart_controller()
        world.clock.suspended_s += IN_CHARGE_S
        assert world.leases.renew(agent.id, agent.heartbeat()) is None
        world.leases.confirm_charge(world.clock.boot_s())
        assert world.leases.renew(agent.id, agent.heartbeat()) is not None


def test_charge_is_known_only_for_a_while_unless_a_lock_keeps_others_from_the_database(
    tmp_path: Path,
) -> None:
    with running_world(tmp_path) as (world, _, _):
        world.clock.suspended_s += 3600.0
        assert world.leases.is_in_charge(10.0)
        world.in_charge_s = IN_CHARGE_S
        world.restart_controller()
        assert world.leases.is_in_charge(10.0)
        world.clock.suspended_s += 10.0
        assert not world.leases.is_in_charge(10.0)
        world.leases.confirm_charge(world.clock.boot_s())
        assert world.leases.is_in_charge(10.0)


def test_agent_that_rebooted_while_nothing_could_be_stored_gets_a_lease_with_its_work(
    tmp_path: Path,
) -> None:
    with running_world(tmp_path) as (world, agent, _):
        world.in_charge_s = 10.0
        world.restart_controller()
        world.clock.advance(11.0)  # nobody could ask the database who is in charge
        agent.reboot()
        world.connect(agent)
        assert agent.running
        assert agent.supervisor.lease_end_s < math.inf


def test_agent_that_can_be_granted_no_lease_gets_no_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_world(tmp_path) as (world, agent, _):
        agent.reboot()
        monkeypatch.setattr(world.leases, "answer", lambda agent, sent_s: None)
        world.connect(agent)
        assert world.closed == [(agent.id, "no lease can be granted now: say hello again")]
        assert not agent.running
        monkeypatch.undo()
        world.connect(agent)
        assert agent.running


def test_leases_are_waited_for_that_an_overtaken_controller_may_have_renewed(
    tmp_path: Path,
) -> None:
    with running_world(tmp_path) as (world, agent, record):
        agent.online = False
        world.in_charge_s = IN_CHARGE_S
        world.restart_controller()
        world.run(IN_CHARGE_S + record.lease_s + LEASE_MARGIN_S - 1.0)
        assert world.plane.live.agents[agent.id].status is AgentStatus.UNREACHABLE
        world.run(2.0)
        assert world.plane.live.agents[agent.id].status is AgentStatus.LOST


def test_leases_are_waited_for_that_an_agent_gets_where_it_goes_back_to_an_overtaken_controller(
    tmp_path: Path,
) -> None:
    with running_world(tmp_path) as (world, agent, _):
        world.in_charge_s = IN_CHARGE_S
        world.restart_controller()
        overtaken = world.leases
        world.restart_controller()
        world.run(IN_CHARGE_S - 100.0)
        agent.online = False
        renewal = overtaken.admit(agent.hello(), beside=True)
        while renewal is not None:
            agent.hear(renewal)
            world.run(1.0)
            renewal = overtaken.renew(agent.id, agent.heartbeat())
        assert agent.running
        assert silent_until_lost(world, agent) > LEASE_S - 1.0


def test_leases_of_an_overtaken_controller_are_forgotten_once_it_can_have_renewed_none(
    tmp_path: Path,
) -> None:
    with running_world(tmp_path, kernel_lease=DAY_S) as (world, agent, _):
        world.in_charge_s = IN_CHARGE_S
        world.restart_controller()
        apply(world)
        for seconds in (IN_CHARGE_S - 10.0, 20.0):
            assert world.leases.until(agent.id) > world.clock.now() + DAY_S
            world.run(seconds)
            world.leases.confirm_charge(world.clock.boot_s())
        assert silent_until_lost(world, agent) < 2 * LEASE_S
