"""Bugs that the invariants of machines' health, and of recovery, find."""

from dataclasses import replace
from typing import Any

import pytest
from proving.swarm.invariants import health, recoveries
from tests.proving.swarm.bugs.registry import finds

from muster.control.engine.module import Parts
from muster.control.engine.work import Move, Work
from muster.control.health import following, handlers, ladder, steps
from muster.control.health.entity import Incident
from muster.control.health.incidents import Incidents
from muster.control.health.ladder import Bounds, Step
from muster.control.health.lifecycle import IncidentLifecycle
from muster.control.health.rebooting.effects import MachineRebooted
from muster.control.health.steps import HealthSteps
from muster.control.recovery import attempts, lifecycle, rules
from muster.control.recovery.book import Recoveries
from muster.control.recovery.entity import Recovery
from muster.control.recovery.handlers import EndRecoveries
from muster.control.session.services import Services
from muster.core.health.verdict import verdict_of
from muster.core.reasons import Reason, ReasonCode
from muster.core.states import AgentStatus
from muster.core.states.health import HealthStatus
from muster.store.records import Agent


@finds(health.NothingBesideServices, first=4)
def services_begin_beside_work(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Services, "_users", lambda *of: 0)
    patch.setattr("muster.store.unit.overcommitted", lambda connection, granted: [])


@finds(health.OneIncident, first=4)
def each_suspicion_begins_an_incident(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Incidents, "of", lambda self, agent_id: None)


@finds(health.OutForCause, first=44)
def machines_need_no_turn_once_a_check_found_out_nothing(patch: pytest.MonkeyPatch) -> None:
    again = HealthSteps._check_again

    def exempt(self: HealthSteps, work: Work, incident: Incident, phase: str, why: Reason) -> None:
        was = incident.needs_no_turn
        again(self, work, incident, phase, why)
        incident.needs_no_turn = was

    patch.setattr(HealthSteps, "_check_again", exempt)


@finds(health.IncidentsEnd, first=19)
def incidents_wait_without_limit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "limit_of", lambda incident, spec: None)


@finds(health.RoundsAreBounded, first=20)
def machines_are_healed_again_and_again(patch: pytest.MonkeyPatch) -> None:
    bounds = HealthSteps._bounds
    patch.setattr(HealthSteps, "_bounds", lambda *of: replace(bounds(*of), rounds=100))


@finds(health.ShareHolds, first=9)
def all_machines_may_be_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ladder, "most_out", lambda machines, share: machines)


@finds(health.NoTurnNoHeal, first=24)
def machines_are_healed_without_a_turn(patch: pytest.MonkeyPatch) -> None:
    take = HealthSteps.take

    def at_once(
        self: HealthSteps, work: Work, incident: Incident, step: Step, phase: str, why: Reason
    ) -> None:
        do = take if step.heal is None else HealthSteps.begin_heal
        do(self, work, incident, step, phase, why)

    patch.setattr(HealthSteps, "take", at_once)


@finds(health.HealthyOnceVerified, first=4)
def any_verdict_leads_back_to_work(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ladder, "after_check", lambda *of: Step(HealthStatus.HEALTHY))


@finds(health.RebootsAreNewBoots, first=14)
def machines_that_are_connected_count_as_rebooted(patch: pytest.MonkeyPatch) -> None:
    def is_there(incident: Incident, agent: Agent) -> bool:
        return agent.status is AgentStatus.ALIVE and agent.connected

    patch.setattr(handlers, "has_booted", is_there)


@finds(health.UnknownIsNotFaulty, first=19)
def unknown_counts_as_faulty_at_once(patch: pytest.MonkeyPatch) -> None:
    bounds = HealthSteps._bounds

    def impatient(self: HealthSteps, incident: Incident) -> Bounds:
        return replace(bounds(self, incident), unknowns=1)

    patch.setattr(HealthSteps, "_bounds", impatient)


@finds(health.VerdictsAreTrue, first=4)
def all_checks_count_as_healthy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(following, "_verdict_of", lambda service: verdict_of("hollow"))


@finds(health.IllTakeNoWork, first=4)
def machines_take_work_whatever_their_health_is(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "ill_of", lambda incident: "")


@finds(health.OutcomesAreFresh, first=194)
def outcomes_of_older_reboots_count(patch: pytest.MonkeyPatch) -> None:
    take = MachineRebooted.take

    def any_generation(self: MachineRebooted, work: Work, parts: Parts) -> None:
        of = {each.id: each.generation for each in parts[Incidents]}
        take(replace(self, generation=of.get(self.incident, 0)), work, parts)

    patch.setattr(MachineRebooted, "take", any_generation)


@finds(health.OperatorsOutrank, first=14)
def suspicions_have_isolated_machines_checked(patch: pytest.MonkeyPatch) -> None:
    add = IncidentLifecycle._add

    def anew(self: IncidentLifecycle, work: Work, incident: Incident, *of: Any, **how: Any) -> bool:
        if incident.status is HealthStatus.ISOLATED:
            self.move_to(work, incident, HealthStatus.SUSPECT, *of[:2])
        return add(self, work, incident, *of, **how)

    patch.setattr(IncidentLifecycle, "_add", anew)


@finds(recoveries.OneRecovery, first=4)
def recoveries_are_made_again_and_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recoveries, "of", lambda self, job: None)


@finds(recoveries.OneRoundEach, first=4)
def failures_are_noted_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attempts, "_is_noted", lambda *of: False)


@finds(recoveries.FaultsChargeNobody, first=9)
def faults_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "FAULTS", frozenset())


@finds(recoveries.RoundsEnd, first=4)
def rounds_hear_nothing_of_their_machines(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recoveries, "changed", lambda *of: None)


@finds(recoveries.RestartsAreBounded, first=19)
def restarts_are_not_counted_against_the_limit(patch: pytest.MonkeyPatch) -> None:
    after_heal = rules.after_heal
    patch.setattr(
        "muster.control.recovery.handlers.after_heal",
        lambda round_, waited_s, restarts, spec: after_heal(round_, waited_s, -1, spec),
    )


@finds(recoveries.LeavesCostNoRestart, first=24)
def leaves_count_as_restarts(patch: pytest.MonkeyPatch) -> None:
    def runs_again(recovery: Recovery, move: Move) -> bool:
        return move.reason is not None and move.reason.code is ReasonCode.RECOVERY_RUNS_AGAIN

    patch.setattr(lifecycle, "_is_restart", runs_again)


@finds(recoveries.NothingBeginsMeanwhile, first=4)
def tasks_begin_again_beside_the_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recoveries, "holds", lambda self, task: False)


@finds(recoveries.NothingBeginsMeanwhile, first=4)
def tasks_begin_again_beside_the_check_of_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recoveries, "holds_job", lambda self, job: False)


@finds(recoveries.RecoveriesFollowJobs, first=4)
def recoveries_outlive_their_jobs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EndRecoveries, "follow", lambda *of: None)
