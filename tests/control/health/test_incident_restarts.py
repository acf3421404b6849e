"""A controller that ends, or loses its mirror, at any point of an incident goes on with it."""

import pytest
from proving.hollow.performers.rebooting import RebootFaults
from proving.hollow.supervisor import Run
from tests.control.health.conftest import MakeWard
from tests.control.health.test_incidents import reach
from tests.control.health.ward import FAULTY, UNKNOWN, Ward

from muster.core.health.remedy import Remedy
from muster.core.health.service import ServiceName
from muster.core.states.health import HEALTH_TABLE, HealthStatus

_H = HealthStatus
CHECK, RESET, REBOOT = ServiceName.CHECK, ServiceName.RESET, ServiceName.REBOOT


def facts(w: Ward) -> dict[str, object]:
    """The stored row of the machine's incident."""
    incident = w.of()
    transient = {"repeats", "rebooted"}
    names = {name for kind in type(incident).__mro__ for name in getattr(kind, "__slots__", ())}
    return {name: getattr(incident, name) for name in names - transient}


@pytest.mark.parametrize("status", sorted(HEALTH_TABLE.live))
def test_an_incident_is_read_as_it_was_stored(ward: MakeWard, status: HealthStatus) -> None:
    w = ward()
    reach(w, status)
    before, ill = facts(w), w.ill()
    w.world.restart_controller()
    after = facts(w)
    if status in (_H.SUSPECT, _H.VERIFYING):  # the next step follows at once
        return
    assert (after, w.ill()) == (before, ill)


@pytest.mark.parametrize("status", sorted(HEALTH_TABLE.live - {_H.ISOLATED}))
@pytest.mark.parametrize("away_s", [0.01, 30.0, 4_000.0])
def test_an_incident_goes_on_after_a_restart(
    ward: MakeWard, status: HealthStatus, away_s: float
) -> None:
    w = ward()
    reach(w, status)
    w.world.restart_controller(away_s)
    w.run(600)
    assert w.is_well()


def test_each_step_survives_a_restart_between_any_two_seconds(ward: MakeWard) -> None:
    w = ward()
    w.plan("a", CHECK, UNKNOWN, FAULTY, FAULTY)
    w.suspect(remedy=Remedy.RESET)
    for _ in range(400):
        w.world.restart_controller()
        w.run(1.0)
    assert w.is_well()
    assert w.done() == [CHECK, CHECK, RESET, CHECK, REBOOT, CHECK]


def test_a_machine_that_is_out_stays_out_over_a_restart(ward: MakeWard) -> None:
    w = ward()
    w.plan("a", CHECK, Run(100.0))
    w.suspect()
    w.world.restart_controller()
    assert w.ill()


def test_a_hard_reboot_under_way_is_not_asked_for_anew_at_once(ward: MakeWard) -> None:
    w = ward(outside=True, boot_s=120.0)
    w.plan("a", REBOOT, Run(1.0, exit_code=1, result="no"))
    w.suspect(remedy=Remedy.REBOOT, confirmed=True)
    w.run(5)
    assert sum(w.world.rebooter.rebooted.values()) == 1
    for _ in range(10):
        w.world.restart_controller()
        w.run(10)
    assert sum(w.world.rebooter.rebooted.values()) == 1
    w.run(200)
    assert w.is_well()


def test_a_hard_reboot_whose_wish_was_lost_is_asked_for_again(ward: MakeWard) -> None:
    w = ward(outside=True)
    w.world.rebooter.faults = RebootFaults(lost=1.0)
    w.plan("a", REBOOT, Run(1.0, exit_code=1, result="no"))
    w.suspect(remedy=Remedy.REBOOT, confirmed=True)
    w.run(5)
    w.world.rebooter.faults = RebootFaults()
    w.world.restart_controller()
    w.run(400)
    assert w.is_well()


def test_nothing_is_left_to_do_once_all_machines_are_well(ward: MakeWard) -> None:
    w = ward(["a", "b"])
    w.suspect("a")
    w.run(60)
    assert len(w.incidents) == 0
    assert not w.incidents.freed
    assert not w.incidents.groups_to_look_at
