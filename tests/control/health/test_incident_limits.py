"""Everything that an incident waits for has a limit."""

from proving.hollow.performers.rebooting import RebootFaults
from proving.hollow.supervisor import Run
from tests.control.health.conftest import MakeWard
from tests.control.health.ward import FAULTY, HANGS, WELL, Ward

from muster.control.health.ladder import Heal
from muster.control.health.limits import EMPTY_S
from muster.core.health.remedy import Remedy
from muster.core.health.service import ServiceName
from muster.core.health.verdict import CheckResult
from muster.core.specs import JobSpec
from muster.core.states.health import HealthStatus

_H = HealthStatus
CHECK, RESET, REBOOT = ServiceName.CHECK, ServiceName.RESET, ServiceName.REBOOT
ALL_GPUS = JobSpec.model_validate({"command": ["train"], "resources": {"cpu": 1, "gpu": 2}})


def told(w: Ward, name: str = "a") -> str:
    """Why the newest incident of a machine has its status."""
    incident = w.last(name)
    assert incident is not None
    assert incident.reason is not None
    return incident.reason.sentence()


def test_a_check_that_does_not_report_found_out_nothing(ward: MakeWard) -> None:
    w = ward(check_timeout=100)
    w.plan("a", CHECK, HANGS)
    w.suspect()
    w.run(250)
    assert w.results()[0] is CheckResult.UNKNOWN


def test_a_service_whose_process_nothing_ends_leads_to_a_hard_reboot(ward: MakeWard) -> None:
    w = ward(check_timeout=100, outside=True)
    w.plan("a", CHECK, HANGS)
    w.suspect()
    incident = w.until(_H.REBOOTING)
    assert incident.heal is Heal.HARD_REBOOT
    w.run(200)
    assert w.is_well()


def test_work_that_nothing_ends_leads_to_a_hard_reboot(ward: MakeWard) -> None:
    w = ward(work=HANGS, outside=True, leave=60)
    w.world.submit(ALL_GPUS)
    w.suspect()
    w.run(60 + EMPTY_S - 10)
    assert w.of().status is _H.SUSPECT
    w.run(20)
    incident = w.of()
    assert incident.status is _H.REBOOTING
    assert incident.heal is Heal.HARD_REBOOT
    w.run(60 + EMPTY_S + 100)
    assert w.is_well()


def test_work_that_nothing_ends_isolates_a_machine_that_nobody_can_reboot(ward: MakeWard) -> None:
    w = ward(work=HANGS, leave=60)
    w.world.submit(ALL_GPUS)
    w.suspect()
    w.until(_H.ISOLATED)
    assert "still there" in told(w)


def test_a_silent_machine_is_rebooted_from_outside(ward: MakeWard) -> None:
    w = ward(outside=True, reboot_timeout=600)
    w.suspect()
    w.world.disconnect(w.world.agent("a"))
    w.run(500)
    assert w.of().status is not _H.REBOOTING
    incident = w.until(_H.REBOOTING)
    assert incident.heal is Heal.HARD_REBOOT
    w.run(100)
    assert w.is_well()


def test_a_silent_machine_that_nobody_can_reboot_is_isolated(ward: MakeWard) -> None:
    w = ward(reboot_timeout=600)
    w.suspect()
    w.world.disconnect(w.world.agent("a"))
    w.until(_H.ISOLATED)
    assert "could not be reached" in told(w)


def test_a_short_silence_changes_nothing(ward: MakeWard) -> None:
    w = ward(check_timeout=600)
    w.plan("a", CHECK, Run(100.0))
    w.suspect()
    w.run(5)
    agent = w.world.agent("a")
    w.world.disconnect(agent)
    w.run(30)
    w.world.connect(agent)
    w.run(100)
    assert w.is_well()
    assert w.results() == [CheckResult.HEALTHY]


def test_a_machine_that_does_not_come_back_is_rebooted_hard_and_then_isolated(
    ward: MakeWard,
) -> None:
    w = ward(outside=True, reboot_timeout=300)
    w.bricks.add("a")
    w.suspect(remedy=Remedy.REBOOT, confirmed=True)
    w.run(310)
    assert w.of().heal is Heal.HARD_REBOOT
    w.until(_H.ISOLATED)
    assert "no other boot" in told(w)
    assert 1 <= sum(w.world.rebooter.rebooted.values()) <= 2


def test_a_reset_that_does_not_end_has_failed(ward: MakeWard) -> None:
    w = ward(reset_timeout=60)
    w.plan("a", RESET, HANGS)
    w.suspect(remedy=Remedy.RESET, confirmed=True)
    w.run(200)
    assert w.of().status is _H.REBOOTING


def test_a_hard_reboot_that_is_refused_has_failed(ward: MakeWard) -> None:
    w = ward(outside=True)
    w.world.rebooter.faults = RebootFaults(refused=1.0)
    w.bricks.add("a")
    w.suspect(remedy=Remedy.REBOOT, confirmed=True)
    w.until(_H.ISOLATED, limit_s=5000)
    assert "refuses" in told(w)


def test_a_hard_reboot_of_which_nobody_hears_is_asked_for_twice_at_most(ward: MakeWard) -> None:
    w = ward(outside=True)
    w.world.rebooter.faults = RebootFaults(lost=1.0)
    agent = w.world.agent("a")
    w.world.disconnect(agent)
    asked = []
    perform = w.world.rebooter.perform

    def noting(effects):  # type: ignore[no-untyped-def]
        asked.extend(effects)
        perform(effects)

    w.world.rebooter.perform = noting  # type: ignore[method-assign]
    w.run(400)
    w.decide("heal")
    w.until(_H.ISOLATED)
    assert len(asked) == 2
    assert asked[0].generation < asked[1].generation


def test_a_machine_that_nobody_verifies_is_healed_again_or_isolated(ward: MakeWard) -> None:
    w = ward(rounds=2, unknowns=1, check_timeout=60)
    w.plan("a", CHECK, FAULTY, Run(1e9), Run(1e9), Run(1e9))
    w.suspect()
    w.until(_H.ISOLATED)
    assert w.done().count(REBOOT) == 2


def test_a_machine_that_returns_twice_under_other_boots_is_verified_all_the_same(
    ward: MakeWard,
) -> None:
    w = ward()
    w.suspect(remedy=Remedy.REBOOT, confirmed=True)
    w.until(_H.VERIFYING)
    w.world.agent("a").asked_to_reboot = True
    w.plan("a", CHECK, WELL, WELL)
    w.run(1000)
    assert w.is_well()
    assert w.done().count(REBOOT) == 1
