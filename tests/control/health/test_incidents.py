"""Machines under suspicion: checked, healed, verified, and back at work or isolated. Each arrow of
the table of incidents is taken here once."""

import pytest
from proving.hollow.supervisor import Run
from tests.control.health.conftest import MakeWard
from tests.control.health.ward import FAILS, FAULTY, UNKNOWN, WELL, WHY, WORN_OUT, Ward
from tests.control.world import ADA, state

from muster.control.health.entity import name_of
from muster.control.health.ladder import Heal
from muster.core.health.remedy import Remedy
from muster.core.health.service import ServiceName, dump
from muster.core.health.verdict import CheckResult, Finding, Severity, verdict_of
from muster.core.ids import JobId
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_agents import AgentRemoved
from muster.core.reasons.of_health import HealthTaskFailed
from muster.core.specs import JobSpec
from muster.core.states import JobState
from muster.core.states.health import HEALTH_TABLE, ILL, HealthStatus
from muster.store import schema
from muster.store.queries.tasks import read_task

_H = HealthStatus
CHECK, RESET, REBOOT = ServiceName.CHECK, ServiceName.RESET, ServiceName.REBOOT
GPU_WORK = JobSpec.model_validate({"command": ["train"], "resources": {"cpu": 1, "gpu": 1}})
ALL_GPUS = JobSpec.model_validate({"command": ["train"], "resources": {"cpu": 1, "gpu": 2}})


def path_of(ward: Ward, name: str = "a") -> list[HealthStatus]:
    """The statuses that the newest incident of a machine passed, by its history."""
    incident = ward.last(name)
    assert incident is not None
    c = schema.history.c
    rows = (
        schema.history.select()
        .where(c.entity == name_of(incident.id, incident.agent_id))
        .order_by(c.seq)
    )
    with ward.world.store.engine.connect() as connection:
        moved = [row for row in connection.execute(rows) if row.to_status != row.from_status]
    return [_H.SUSPECT, *(HealthStatus(row.to_status) for row in moved)]


def test_a_machine_under_suspicion_is_checked_and_returns(ward: MakeWard) -> None:
    w = ward()
    incident = w.suspect(devices=[1])
    assert incident is not None
    assert incident.is_out
    assert not incident.has_turn  # nothing runs there
    assert w.ill() == ILL[_H.CHECKING]
    w.run(20)
    assert w.is_well()
    assert path_of(w) == [_H.SUSPECT, _H.CHECKING, _H.HEALTHY]
    (service,) = w.services["a"]
    assert (service.name, service.devices, service.level) == (CHECK, (1,), 2)
    assert service.why == WHY.sentence()
    ended = w.last()
    assert ended is not None
    assert ended.result is CheckResult.HEALTHY
    assert ended.finished_at is not None
    assert len(ended.checks) == 1


def test_a_machine_under_suspicion_takes_no_work_until_it_is_well(ward: MakeWard) -> None:
    w = ward()
    w.suspect()
    job = w.world.submit(GPU_WORK)
    w.run(5)
    assert state(job) is JobState.PENDING
    w.run(30)
    assert state(job) is JobState.SUCCEEDED


def test_a_machine_whose_group_checks_none_stays_at_work(ward: MakeWard) -> None:
    w = ward(group={"health": None})
    w.world.ask(_without_health)
    assert w.suspect() is None
    assert w.is_well()


def _without_health(work, parts):  # type: ignore[no-untyped-def]
    from muster.control.group.requests import GroupRequests

    spec = work.live.groups["default"].model_copy(update={"health": None})
    return parts[GroupRequests].put_group(work, spec)


def test_work_ends_by_itself_before_the_check(ward: MakeWard) -> None:
    w = ward(work=Run(30.0), leave=60)
    job = w.world.submit(ALL_GPUS)
    w.suspect()
    w.run(20)
    assert not w.services["a"]
    assert w.ill() == ILL[_H.SUSPECT]
    w.run(15)
    assert state(job) is JobState.SUCCEEDED
    assert w.done() == [CHECK]


def test_work_that_does_not_end_in_time_is_displaced(ward: MakeWard) -> None:
    w = ward(["a", "b"], work=Run(500.0), leave=60)
    w.world.disconnect(w.world.agent("b"))
    job = w.world.submit(ALL_GPUS)
    w.world.connect(w.world.agent("b"))
    w.suspect("a")
    w.run(80)
    assert w.done("a") == [CHECK]
    with w.world.store.engine.connect() as connection:
        task = read_task(connection, ADA, job.id, 0)
    assert task is not None
    assert (task.preemption_count, task.failure_count) == (1, 0)
    assert w.world.agent("b").running
    (session,) = [each for each in w.world.plane.live.sessions.values() if each.job is job]
    assert session.status == "RUNNING"


def test_work_on_other_devices_runs_on(ward: MakeWard) -> None:
    w = ward(work=Run(500.0), leave=10)
    job = w.world.submit(GPU_WORK)
    (session,) = w.world.plane.live.sessions.values()
    (share,) = session.kernels[0].shares
    w.suspect(devices=[1 - share.index])
    w.run(30)
    assert w.is_well()
    assert w.done() == [CHECK]
    assert state(job) is JobState.RUNNING
    assert len(w.world.agent("a").starts) == 2


def test_a_further_suspicion_is_added_to_the_incident(ward: MakeWard) -> None:
    w = ward()
    first = w.suspect(devices=[0])
    assert first is not None
    generation = first.generation
    again = w.suspect(devices=[1], remedy=Remedy.RESET, confirmed=True)
    assert again is first
    assert w.of().devices == (0, 1)
    assert w.of().generation == generation
    w.suspect(remedy=Remedy.CHECK)  # of the machine as a whole
    assert w.of().devices == ()
    assert w.of().confirmed
    assert w.of().progress.remedy is Remedy.RESET
    assert first.why == WHY


def test_a_faulty_machine_reboots_is_verified_and_returns(ward: MakeWard) -> None:
    w = ward()
    w.plan("a", CHECK, FAULTY)
    w.suspect()
    incident = w.until(_H.REBOOTING)
    assert incident.heal is Heal.REBOOT
    assert incident.confirmed
    w.until(_H.VERIFYING)
    w.run(20)
    assert w.is_well()
    assert path_of(w) == [_H.SUSPECT, _H.CHECKING, _H.REBOOTING, _H.VERIFYING, _H.HEALTHY]
    assert w.done() == [CHECK, REBOOT, CHECK]
    assert w.results() == [CheckResult.FAULTY, CheckResult.HEALTHY]


def test_a_mere_reconnect_is_no_reboot(ward: MakeWard) -> None:
    w = ward(boot_s=10.0, reboot_timeout=300)
    w.sleepers.add("a")
    w.plan("a", CHECK, FAULTY)
    w.suspect()
    w.until(_H.REBOOTING)
    w.run(200)
    assert w.world.agent("a").online
    assert w.of().status is _H.REBOOTING
    ended = w.until(_H.ISOLATED)
    assert ended.reason is not None
    assert "no other boot" in ended.reason.sentence()


def test_what_was_seen_calls_for_a_reset(ward: MakeWard) -> None:
    w = ward()
    w.suspect(devices=[0], remedy=Remedy.RESET, confirmed=True)
    w.run(40)
    assert w.is_well()
    assert path_of(w) == [_H.SUSPECT, _H.RESETTING, _H.VERIFYING, _H.HEALTHY]
    assert [(each.name, each.devices) for each in w.services["a"]] == [(RESET, (0,)), (CHECK, (0,))]


def test_what_was_seen_calls_for_a_reboot(ward: MakeWard) -> None:
    w = ward()
    w.suspect(remedy=Remedy.REBOOT, confirmed=True)
    w.run(200)
    assert path_of(w) == [_H.SUSPECT, _H.REBOOTING, _H.VERIFYING, _H.HEALTHY]


def test_what_was_seen_calls_for_an_operator(ward: MakeWard) -> None:
    w = ward()
    incident = w.suspect(remedy=Remedy.OPERATOR, confirmed=True)
    assert incident is not None
    assert incident.status is _H.ISOLATED
    assert incident.reason is not None
    assert incident.reason.code is ReasonCode.HEALTH_FOR_OPERATOR
    assert path_of(w) == [_H.SUSPECT, _H.ISOLATED]


def test_a_remedy_that_nothing_confirmed_is_no_more_than_a_hint(ward: MakeWard) -> None:
    w = ward()
    w.plan("a", CHECK, FAULTY)
    w.suspect(remedy=Remedy.RESET)
    w.run(60)
    assert path_of(w) == [_H.SUSPECT, _H.CHECKING, _H.RESETTING, _H.VERIFYING, _H.HEALTHY]


def test_a_check_that_finds_nothing_does_not_outrank_what_the_hardware_said(
    ward: MakeWard,
) -> None:
    w = ward()
    w.suspect()
    w.run(2)
    w.suspect(remedy=Remedy.RESET, confirmed=True)
    w.run(60)
    assert path_of(w) == [_H.SUSPECT, _H.CHECKING, _H.RESETTING, _H.VERIFYING, _H.HEALTHY]


def test_a_check_that_finds_worn_out_hardware_leaves_it_to_an_operator(ward: MakeWard) -> None:
    w = ward()
    w.plan("a", CHECK, WORN_OUT)
    w.suspect()
    w.until(_H.ISOLATED)
    assert path_of(w) == [_H.SUSPECT, _H.CHECKING, _H.ISOLATED]
    assert w.ill() == ILL[_H.ISOLATED]


def test_a_reset_that_fails_leads_to_a_reboot_and_that_to_a_hard_one(ward: MakeWard) -> None:
    w = ward(outside=True, rounds=5)
    w.plan("a", RESET, FAILS)
    w.plan("a", REBOOT, Run(4.0, exit_code=1, result="no"))
    w.suspect(remedy=Remedy.RESET, confirmed=True)
    w.run(5)
    assert w.of().heal is Heal.REBOOT
    w.run(5)
    assert w.of().heal is Heal.HARD_REBOOT
    w.run(100)
    assert w.is_well()
    assert path_of(w) == [_H.SUSPECT, _H.RESETTING, _H.REBOOTING, _H.VERIFYING, _H.HEALTHY]
    assert sum(w.world.rebooter.rebooted.values()) == 1
    assert w.done() == [RESET, REBOOT, CHECK]


def test_a_machine_that_stays_faulty_climbs_the_ladder_and_is_isolated(ward: MakeWard) -> None:
    w = ward(outside=True, rounds=3)
    w.plan("a", CHECK, *[FAULTY] * 10)
    w.suspect(remedy=Remedy.RESET)
    isolated = w.until(_H.ISOLATED)
    assert path_of(w) == [
        _H.SUSPECT,
        _H.CHECKING,
        _H.RESETTING,
        _H.VERIFYING,
        _H.REBOOTING,
        _H.VERIFYING,
        _H.REBOOTING,
        _H.VERIFYING,
        _H.ISOLATED,
    ]
    assert isolated.progress.rounds == 3
    assert isolated.progress.last is Heal.HARD_REBOOT
    assert isolated.reason is not None
    assert isolated.reason.code is ReasonCode.HEALTH_GAVE_UP
    w.run(7200)
    assert w.of().status is _H.ISOLATED
    assert w.suspect() is None  # nothing of this is new


def test_a_reset_machine_that_is_still_faulty_may_be_reset_by_a_stronger_means_alone(
    ward: MakeWard,
) -> None:
    w = ward()
    w.plan("a", CHECK, FAULTY)
    w.suspect(remedy=Remedy.RESET, confirmed=True)
    w.run(300)
    assert path_of(w)[:4] == [_H.SUSPECT, _H.RESETTING, _H.VERIFYING, _H.REBOOTING]


def test_an_unknown_machine_is_checked_again_and_again_with_growing_waits(ward: MakeWard) -> None:
    w = ward()
    w.plan("a", CHECK, UNKNOWN, UNKNOWN)
    w.suspect()
    w.run(11)
    incident = w.of()
    assert incident.status is _H.SUSPECT
    assert incident.is_out
    assert incident.progress.unknowns == 1
    first_wait_s = incident.retry_at - w.world.clock.now()
    w.run(50)
    second_wait_s = incident.retry_at - w.world.clock.now()
    assert incident.progress.unknowns == 2
    assert second_wait_s > first_wait_s
    w.run(200)
    assert w.is_well()
    assert w.results() == [CheckResult.UNKNOWN, CheckResult.UNKNOWN, CheckResult.HEALTHY]
    ended = w.last()
    assert ended is not None
    assert ended.result is CheckResult.UNKNOWN
    assert REBOOT not in w.done()


def test_a_machine_that_stays_unknown_counts_as_faulty(ward: MakeWard) -> None:
    w = ward(unknowns=3)
    w.plan("a", CHECK, UNKNOWN, UNKNOWN, UNKNOWN)
    w.suspect()
    w.until(_H.REBOOTING)
    assert w.results() == [CheckResult.UNKNOWN] * 3


def test_many_unknown_machines_are_not_rebooted(ward: MakeWard) -> None:
    names = [*"abcdef"]
    w = ward(names, unknowns=2, max_unhealthy=0.5)
    for name in names[:3]:
        w.plan(name, CHECK, *[UNKNOWN] * 100)
        w.suspect(name)
    w.run(7200, 5.0)
    assert not any(REBOOT in w.done(name) for name in names)
    told = w.of("a").reason
    assert told is not None
    assert told.code is ReasonCode.HEALTH_MANY_UNKNOWN
    for name in names[:3]:
        ended = w.until(_H.HEALTHY, name, 100_000)
        assert ended.reason is not None
        assert ended.reason.code is ReasonCode.HEALTH_UNPROVEN
    assert not any(REBOOT in w.done(name) for name in names)


def test_a_reset_of_devices_is_tried_on_machines_with_devices_alone(ward: MakeWard) -> None:
    w = ward([])
    w.join("plain", gpus=0)
    w.suspect("plain", remedy=Remedy.RESET, confirmed=True)
    w.run(200)
    assert w.done("plain") == [REBOOT, CHECK]


def test_a_removed_machine_has_no_incident_any_more(ward: MakeWard) -> None:
    from muster.control.agent.lifecycle import AgentLifecycle

    w = ward(["a", "b"])
    w.suspect("a")
    agent = w.world.plane.live.agents[w.world.agent("a").id]
    w.world.disconnect(w.world.agent("a"))
    why = AgentRemoved(by="ada")
    w.world.ask(lambda work, parts: parts[AgentLifecycle].remove(work, agent, "Test", why))
    ended = w.last("a")
    assert ended is not None
    assert ended.status is _H.GONE
    assert len(w.incidents) == 0


@pytest.mark.parametrize("status", sorted(HEALTH_TABLE.live - {_H.SUSPECT}))
def test_a_machine_may_be_removed_whatever_its_incident(
    ward: MakeWard, status: HealthStatus
) -> None:
    from muster.control.agent.lifecycle import AgentLifecycle

    w = ward()
    reach(w, status)
    agent = w.world.plane.live.agents[w.world.agent("a").id]
    w.world.disconnect(w.world.agent("a"))
    why = AgentRemoved(by="ada")
    w.world.ask(lambda work, parts: parts[AgentLifecycle].remove(work, agent, "Test", why))
    ended = w.last("a")
    assert ended is not None
    assert ended.status is _H.GONE


def reach(w: Ward, status: HealthStatus) -> None:
    """Have the machine's incident have this status."""
    match status:
        case _H.RESETTING:
            w.suspect(remedy=Remedy.RESET, confirmed=True)
        case _H.REBOOTING | _H.VERIFYING:
            w.suspect(remedy=Remedy.REBOOT, confirmed=True)
        case _H.ISOLATED:
            w.suspect(remedy=Remedy.OPERATOR, confirmed=True)
        case _H.SUSPECT:
            w.plan("a", CHECK, UNKNOWN)
            w.suspect()
        case _:
            w.suspect()
    w.until(status)


def test_a_suspicion_of_a_job_names_it_apart_from_the_reason(ward: MakeWard) -> None:
    w = ward()
    incident = w.suspect(why=HealthTaskFailed(exit_code=1), job=JobId("job-1"))
    assert incident is not None
    assert incident.job == "job-1"
    assert incident.why.sentence() == "a task failed on it"


def test_a_machine_that_is_healed_is_well_for_the_next_suspicion(ward: MakeWard) -> None:
    w = ward()
    w.suspect()
    w.run(20)
    first = w.last()
    w.plan("a", CHECK, WELL)
    w.suspect()
    w.run(20)
    second = w.last()
    assert first is not None
    assert second is not None
    assert first.id != second.id
    assert w.is_well()


def test_a_fault_of_a_gpu_that_the_machine_does_not_have_is_of_all_of_the_machine(
    ward: MakeWard,
) -> None:
    w = ward()
    strange = Finding("nvml", Severity.FAULT, "it is broken", device=77)
    w.plan("a", CHECK, Run(10.0, result=dump(verdict_of("nvml", [strange]))))
    w.suspect(devices=[0])
    assert w.until(_H.HEALTHY).devices == ()
    assert w.done() == [CHECK, REBOOT, CHECK]
    assert w.services["a"][-1].devices == ()
