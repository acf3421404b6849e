"""`muster why` of machines that are ill: what is waited for, and until when."""

from proving.hollow.supervisor import Run
from tests.control.health.conftest import MakeWard
from tests.control.health.ward import FAILS, FAULTY, HANGS, UNKNOWN, WHY, Ward
from tests.control.world import ROOT

from muster.control.agent.explanation import explain_agent
from muster.control.health.explanation import explain_incident, health_of
from muster.control.health.requests import HealthDecision, HealthRequests
from muster.control.job.explanation import explain_job
from muster.control.session.cluster.state import ClusterState
from muster.core.health.remedy import Remedy
from muster.core.health.service import ServiceName
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec
from muster.core.states.health import HealthStatus
from muster.core.views.placement import WhyView

H = HealthStatus


def why(ward: Ward, name: str = "a") -> WhyView:
    """The answer about the incident of a machine."""
    plane = ward.world.plane
    return explain_incident(plane.live, plane.parts, ward.of(name), ward.world.clock.now())


def why_agent(ward: Ward, name: str = "a") -> WhyView:
    plane, now = ward.world.plane, ward.world.clock.now()
    incident = ward.incidents.of(ward.world.agent(name).id)
    health = None if incident is None else health_of(plane.live, plane.parts, incident, now)
    guard = plane.parts[ClusterState].guard
    return explain_agent(plane.live, guard, ward.world.agent(name).id, now, ROOT, health)


def decide(ward: Ward, decision: HealthDecision, name: str = "a", note: str = "") -> None:
    id_ = ward.world.agent(name).id
    ward.world.ask(
        lambda work, parts: parts[HealthRequests].decide(work, ROOT, id_, decision, note)
    )


def test_suspect_tells_for_how_long_its_work_may_stay(ward: MakeWard) -> None:
    busy = ward(work=Run(1e6), leave=90)
    busy.world.submit(JobSpec(command=["train"]))
    busy.run(5)
    busy.suspect()
    told = why(busy)
    assert told.status == H.SUSPECT
    assert told.verdict == "agent a is under suspicion, for 0ms"
    assert told.details == (
        "1 kernel still holds room there, and may stay for 1m30s",
        "it is checked once nothing is in the way any more",
    )
    assert [each.sentence for each in told.reasons] == [WHY.sentence()]


def test_machine_that_waits_for_its_turn_tells_how_many_may_be_out(ward: MakeWard) -> None:
    two = ward(("a", "b"), max_unhealthy=0.5, work=Run(1e6))
    two.plan("a", ServiceName.CHECK, HANGS)
    decide(two, HealthDecision.CHECK, "a")
    two.world.submit(JobSpec(command=["train"]))
    two.suspect("b")
    told = why(two, "b")
    (turn, suspicion) = told.reasons
    assert turn.code == ReasonCode.HEALTH_WAITS_TURN
    assert "1 of at most 1 machine of group default" in turn.sentence
    assert suspicion.sentence == WHY.sentence()
    takes = why_agent(two, "b")
    assert takes.verdict == "agent b takes work; it runs 1 kernel"
    assert takes.details[0].startswith("agent b is under suspicion")


def test_check_that_is_under_way_tells_until_when_it_may_be(ward: MakeWard) -> None:
    checked = ward(check_timeout=600)
    checked.plan("a", ServiceName.CHECK, HANGS)
    checked.suspect()
    checked.until(H.CHECKING)
    checked.run(60)
    told = why(checked)
    assert told.verdict.startswith("agent a is being checked, for 1m0")
    (detail,) = told.details
    assert detail.startswith("the check has taken 1m0")
    assert "and has failed unless it ends within 9m5" in detail or "10m" in detail


def test_machine_that_nothing_is_known_of_tells_when_it_is_checked_again(ward: MakeWard) -> None:
    unknown = ward(unknowns=3)
    unknown.plan("a", ServiceName.CHECK, UNKNOWN)
    unknown.suspect()
    unknown.until(H.CHECKING)
    unknown.until(H.SUSPECT)
    told = why(unknown)
    assert told.details[0].startswith("it is checked in ")
    assert "1 check in a row found out nothing; after 3 it counts as faulty" in told.details
    assert "the library is missing" in told.reasons[0].sentence


def test_machine_that_reboots_tells_until_when_it_has_to_be_back(ward: MakeWard) -> None:
    faulty = ward(boot_s=300.0, reboot_timeout=1200)
    faulty.plan("a", ServiceName.CHECK, FAULTY)
    faulty.suspect()
    faulty.until(H.REBOOTING)
    faulty.run(60)
    told = why(faulty)
    assert any("another boot of it has to join within 1" in each for each in told.details)
    assert "1 round of healing was tried, of at most 3" in told.details
    assert "it is broken" in told.reasons[0].sentence
    assert why_agent(faulty).verdict.startswith("agent a takes nothing new")


def test_isolated_machine_tells_who_decided_and_what_to_do(ward: MakeWard) -> None:
    isolated = ward()
    decide(isolated, HealthDecision.ISOLATE, note="smells of smoke")
    told = why(isolated)
    assert told.details == ("nothing is tried any more: it waits for an operator's decision",)
    assert told.reasons[0].sentence == "isolated by root (smells of smoke)"
    assert "`muster agents return a`" in told.reasons[0].remedy
    about = why_agent(isolated)
    assert about.verdict == "agent a takes nothing new; it runs 0 kernels"
    assert about.details == (told.verdict, *told.details)
    decide(isolated, HealthDecision.RETURN)
    assert why_agent(isolated) == WhyView(
        subject=isolated.world.agent("a").id,
        status="ALIVE",
        verdict="agent a takes work; it runs 0 kernels",
    )


def test_work_that_finds_no_room_counts_machines_that_heal(ward: MakeWard) -> None:
    ill = ward(("a", "b", "c"), max_unhealthy=1.0)
    ill.plan("a", ServiceName.CHECK, HANGS)
    ill.suspect("a")
    decide(ill, HealthDecision.ISOLATE, "b")
    ill.run(5)
    job = ill.world.submit(JobSpec(command=["x"], tasks=2, coscheduled=True, resources={"cpu": 8}))
    ill.run(5)
    plane = ill.world.plane
    (told,) = explain_job(plane.live, ill.world.cluster, job.id, ill.world.clock.now()).reasons
    assert "(1 being checked, 1 isolated)" in told.sentence
    assert "Those that are checked or healed come back by themselves." in told.remedy
    assert "`muster agents return AGENT`" in told.remedy


def test_decisions_about_a_machine_that_reboots_are_refused_or_outrank_it(ward: MakeWard) -> None:
    faulty = ward(boot_s=300.0)
    faulty.plan("a", ServiceName.CHECK, FAULTY)
    faulty.suspect()
    rebooting = faulty.until(H.REBOOTING)
    decide(faulty, HealthDecision.ISOLATE, note="leave it alone")
    isolated = faulty.of("a")
    assert (isolated.id, isolated.status) == (rebooting.id, H.ISOLATED)
    faulty.run(1_000)
    assert faulty.of("a").status is H.ISOLATED, "its return changes nothing"


def test_reset_that_failed_is_told_in_the_words_of_the_tool(ward: MakeWard) -> None:
    refused = ward(rounds=5)
    refused.plan("a", ServiceName.RESET, FAILS)
    refused.suspect(remedy=Remedy.RESET, confirmed=True)
    refused.until(H.REBOOTING)
    told = [each.sentence for each in why(refused).reasons]
    assert told == ["the reset failed: nvidia-smi says no", WHY.sentence()]


def test_faulty_machine_that_waits_for_its_turn_tells_that_it_takes_no_work(
    ward: MakeWard,
) -> None:
    two = ward(("a", "b"))
    two.plan("a", ServiceName.CHECK, HANGS)
    decide(two, HealthDecision.CHECK, "a")
    two.suspect("b", remedy=Remedy.REBOOT, confirmed=True)
    told = why(two, "b")
    assert told.details == ()
    assert told.reasons[0].sentence == (
        "it is known to be faulty, takes no work, and waits for its turn to be healed: 1 of at "
        "most 1 machine of group default are being emptied, checked or healed"
    )
    assert why_agent(two, "b").verdict.startswith("agent b takes nothing new")
