"""Machines of which nothing can be found out, and which cannot be healed either."""

import pytest
from proving.hollow.supervisor import Run
from tests.control.health.conftest import MakeWard
from tests.control.health.ward import FAILS, UNKNOWN, WELL

from muster.control.health.explanation import missing_checks
from muster.control.health.limits import UNPROVEN_S
from muster.core.health.remedy import Remedy
from muster.core.health.service import ServiceName, dump
from muster.core.health.verdict import missing, unknown
from muster.core.reasons import ReasonCode
from muster.core.states.health import HealthStatus

_H = HealthStatus
CHECK, RESET, REBOOT = ServiceName.CHECK, ServiceName.RESET, ServiceName.REBOOT
REFUSED = Run(4.0, exit_code=1, result=dump(unknown("reboot", "the controller is on this machine")))


def test_a_machine_that_cannot_be_checked_or_healed_takes_work_again_and_is_let_be_for_a_while(
    ward: MakeWard,
) -> None:
    w = ward(unknowns=3)
    w.plan("a", CHECK, *[UNKNOWN] * 3)
    w.plan("a", REBOOT, REFUSED)
    w.suspect()
    ended = w.until(_H.HEALTHY)
    assert w.done() == [CHECK, CHECK, CHECK, REBOOT]
    assert ended.reason is not None
    assert ended.reason.code is ReasonCode.HEALTH_UNPROVEN
    assert "the controller is on this machine" in ended.reason.sentence()
    assert ended.progress.rounds == 0
    assert w.suspect() is None
    assert w.suspect(confirmed=True, remedy=Remedy.RESET) is not None
    w.until(_H.HEALTHY)
    w.run(UNPROVEN_S)
    assert w.suspect() is not None


def test_an_operator_has_a_machine_checked_that_could_not_be_a_moment_ago(ward: MakeWard) -> None:
    w = ward(unknowns=1, rounds=0)
    w.plan("a", CHECK, UNKNOWN)
    w.suspect()
    w.until(_H.HEALTHY)
    assert w.decide("check") is not None


def test_a_machine_that_is_checked_again_counts_once_among_those_that_are_unknown(
    ward: MakeWard,
) -> None:
    w = ward(["a", "b", "c", "d", "e"], unknowns=3)
    w.plan("a", CHECK, *[UNKNOWN] * 6)
    w.plan("a", REBOOT, REFUSED, REFUSED)
    w.suspect()
    w.until(_H.HEALTHY)
    w.decide("check")
    w.until(_H.HEALTHY)
    assert w.done() == [CHECK, CHECK, CHECK, REBOOT] * 2


def test_a_check_that_finds_out_something_ends_the_pause(ward: MakeWard) -> None:
    w = ward(unknowns=3)
    w.plan("a", CHECK, *[UNKNOWN] * 3, WELL)
    w.plan("a", REBOOT, REFUSED)
    w.suspect()
    w.until(_H.HEALTHY)
    w.decide("check")
    w.until(_H.HEALTHY)
    assert w.incidents.in_group("default").unknown_at(w.world.clock.now()) == 0
    assert w.suspect() is not None


@pytest.mark.parametrize("remedy", [Remedy.RESET, Remedy.REBOOT])
def test_a_machine_whose_hardware_told_of_a_fault_is_isolated_if_it_cannot_be_healed(
    ward: MakeWard, remedy: Remedy
) -> None:
    w = ward()
    w.plan("a", RESET, FAILS)
    w.plan("a", REBOOT, REFUSED)
    w.suspect(remedy=remedy, confirmed=True)
    w.until(_H.ISOLATED)


def test_a_machine_that_stays_unknown_over_its_reboots_is_isolated(ward: MakeWard) -> None:
    w = ward(unknowns=1, rounds=2)
    w.plan("a", CHECK, *[UNKNOWN] * 3)
    w.suspect()
    assert w.until(_H.ISOLATED).progress.healed == 2


LACKS = Run(4.0, result=dump(missing("nccl")))


def test_nobody_is_healed_for_a_check_that_is_not_there(ward: MakeWard) -> None:
    w = ward(["a", "b", "c"], max_unhealthy=1.0)
    for name in "abc":
        w.plan(name, CHECK, LACKS)
        w.suspect(name)
    w.run(60)
    for name in "abc":
        assert w.is_well(name)
        assert w.done(name) == [CHECK]
        ended = w.last(name)
        assert ended is not None
        assert ended.reason is not None
        assert ended.reason.code is ReasonCode.HEALTH_UNCHECKED
        assert "check nccl is not on this machine" in ended.reason.sentence()
    assert w.suspect("a") is None


def test_a_known_fault_is_healed_though_no_check_is_there(ward: MakeWard) -> None:
    w = ward()
    w.plan("a", CHECK, LACKS, LACKS)
    w.suspect(confirmed=True)
    w.run(300)
    assert w.done() == [CHECK, REBOOT, CHECK]
    assert w.is_well()


def test_a_group_tells_which_of_its_checks_connected_agents_lack(ward: MakeWard) -> None:
    w = ward(["a", "b", "c"], checks=["disk", "nccl"])
    live = w.world.plane.live
    assert missing_checks(live, "default") == []  # older agents do not tell
    for name, checks in {"a": ("disk",), "b": ("disk", "nccl"), "c": ("disk",)}.items():
        live.agents[w.world.agent(name).id].checks = checks
    (told,) = missing_checks(live, "default")
    assert told.sentence() == (
        "check nccl of group default is missing on 2 connected agents, such as a; the others "
        "decide there"
    )
