"""Operators decide about machines, whatever checks found; what comes late changes nothing."""

import math

import pytest
from proving.hollow.supervisor import Run
from tests.control.health.conftest import MakeWard
from tests.control.health.test_incidents import path_of, reach
from tests.control.health.ward import FAULTY, WHY
from tests.control.world import World

from muster.control.health.entity import Incident
from muster.control.health.ladder import Heal
from muster.control.health.rebooting.effects import MachineRebooted
from muster.core.errors import Conflict
from muster.core.health.remedy import Remedy
from muster.core.health.service import ServiceName
from muster.core.reasons.of_health import HealthIsolatedBy
from muster.core.states.health import HEALTH_TABLE, ILL, HealthStatus

_H = HealthStatus
CHECK, RESET, REBOOT = ServiceName.CHECK, ServiceName.RESET, ServiceName.REBOOT
LIVE = sorted(HEALTH_TABLE.live)
ISOLATED = HealthIsolatedBy(agent="a", by="ada", note="it smells")


def test_an_operator_isolates_a_healthy_machine(ward: MakeWard) -> None:
    w = ward()
    incident = w.decide("isolate", why=ISOLATED)
    assert incident is not None
    assert incident.status is _H.ISOLATED
    assert w.ill() == ILL[_H.ISOLATED]
    assert incident.reason == ISOLATED
    w.run(600)
    assert w.of() is incident


@pytest.mark.parametrize("status", LIVE)
def test_an_operator_isolates_a_machine_whatever_it_is_doing(
    ward: MakeWard, status: HealthStatus
) -> None:
    w = ward()
    reach(w, status)
    w.decide("isolate", why=ISOLATED)
    w.run(600)
    assert w.of().status is _H.ISOLATED
    assert w.of().reason == ISOLATED
    assert not w.world.plane.live.sessions


@pytest.mark.parametrize("status", LIVE)
def test_an_operator_returns_a_machine_whatever_it_is_doing(
    ward: MakeWard, status: HealthStatus
) -> None:
    w = ward()
    reach(w, status)
    w.decide("return")
    assert w.is_well()
    w.run(300)
    assert w.is_well()


def test_a_healthy_machine_is_not_returned(ward: MakeWard) -> None:
    assert ward().decide("return") is None


@pytest.mark.parametrize("status", [_H.SUSPECT, _H.CHECKING, _H.VERIFYING, _H.ISOLATED])
def test_an_operator_has_a_machine_checked(ward: MakeWard, status: HealthStatus) -> None:
    w = ward()
    reach(w, status)
    w.decide("check")
    assert w.of().progress.rounds == 0
    w.run(60)
    assert w.is_well()
    assert w.done()[-1] is CHECK


def test_an_operator_has_a_healthy_machine_checked_without_a_turn(ward: MakeWard) -> None:
    w = ward(["a", "b"])
    w.decide("isolate", "b")
    w.decide("check", "a")
    w.run(20)
    assert w.done("a") == [CHECK]
    assert w.is_well("a")


@pytest.mark.parametrize("status", [_H.RESETTING, _H.REBOOTING])
def test_a_machine_that_is_being_healed_is_checked_afterwards(
    ward: MakeWard, status: HealthStatus
) -> None:
    w = ward()
    reach(w, status)
    with pytest.raises(Conflict, match="checked afterwards"):
        w.decide("check")


@pytest.mark.parametrize("status", sorted(HEALTH_TABLE.live - {_H.REBOOTING}))
def test_an_operator_has_a_machine_healed(ward: MakeWard, status: HealthStatus) -> None:
    w = ward()
    reach(w, status)
    w.decide("heal")
    assert w.of().status is _H.REBOOTING
    w.run(600)
    assert w.is_well()


def test_an_operator_has_a_healthy_machine_healed(ward: MakeWard) -> None:
    w = ward()
    w.decide("heal")
    w.run(200)
    assert path_of(w) == [_H.SUSPECT, _H.REBOOTING, _H.VERIFYING, _H.HEALTHY]


def test_a_machine_is_not_rebooted_while_it_reboots(ward: MakeWard) -> None:
    w = ward()
    reach(w, _H.REBOOTING)
    with pytest.raises(Conflict, match="already"):
        w.decide("heal")


def test_a_silent_machine_that_an_operator_has_healed_is_rebooted_from_outside(
    ward: MakeWard,
) -> None:
    w = ward(outside=True)
    w.world.disconnect(w.world.agent("a"))
    w.run(200)
    incident = w.decide("heal")
    assert incident is not None
    assert incident.heal is Heal.HARD_REBOOT
    w.run(200)
    assert w.is_well()


def test_a_verdict_that_comes_after_an_operator_decided_changes_nothing(ward: MakeWard) -> None:
    w = ward()
    w.plan("a", CHECK, Run(20.0, result=FAULTY.result, stubborn=True, outlives_kill_s=math.inf))
    w.suspect()
    w.run(5)
    generation = w.of().generation
    agent = w.world.agent("a")
    (check,) = agent.running
    w.decide("isolate", why=ISOLATED)
    assert w.of().generation > generation
    w.run(15)
    agent.supervisor.end_process(check)
    w.run(45)
    assert w.of().reason == ISOLATED
    assert w.of().checks == ()


def test_a_verdict_that_comes_after_the_next_check_began_changes_nothing(ward: MakeWard) -> None:
    w = ward()
    w.plan("a", CHECK, Run(15.0, result=FAULTY.result, stubborn=True, outlives_kill_s=math.inf))
    w.suspect()
    w.run(5)
    agent = w.world.agent("a")
    (first,) = agent.running
    w.decide("check")
    w.run(10)
    agent.supervisor.end_process(first)
    w.run(50)
    assert w.is_well()
    assert REBOOT not in w.done()


def outcome(world: World, incident: Incident, generation: int, *, done: bool) -> None:
    """The performer of hard reboots tells what came of one."""
    world.inbox.put(MachineRebooted(incident.id, generation, done, "" if done else "no power"))
    world.settle()


def test_an_outcome_of_an_older_reboot_changes_nothing(ward: MakeWard) -> None:
    w = ward(outside=True)
    w.world.disconnect(w.world.agent("a"))
    w.run(200)
    w.bricks.add("a")
    w.decide("heal")
    w.run(5)
    incident = w.of()
    outcome(w.world, incident, incident.generation - 1, done=False)
    assert w.of().status is _H.REBOOTING
    outcome(w.world, incident, incident.generation, done=False)
    assert w.of().status is _H.ISOLATED
    outcome(w.world, incident, incident.generation, done=True)
    assert w.of().status is _H.ISOLATED


def test_a_further_suspicion_leaves_the_generation_as_it_is(ward: MakeWard) -> None:
    w = ward()
    w.suspect()
    w.run(2)
    generation = w.of().generation
    for _ in range(20):
        w.suspect(why=WHY, remedy=Remedy.RESET)
    assert w.of().generation == generation


def test_an_operators_isolation_outlasts_suspicions_that_are_not_new(ward: MakeWard) -> None:
    w = ward()
    w.decide("isolate", why=ISOLATED)
    assert w.suspect() is None
    assert w.suspect(confirmed=True) is not None
    assert w.of().status is _H.ISOLATED
