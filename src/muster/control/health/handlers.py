"""The handlers of incidents: each looks after the incidents of one status, and after the limit of
what they wait for (design: Machine health)."""

from collections.abc import Collection, Sequence

from muster.control.engine.handler import (
    FollowingHandler,
    HandlerResult,
    LifecycleHandler,
    StatusTransitions,
    TransitionStatus,
)
from muster.control.engine.retries import RetryPolicy
from muster.control.engine.work import Work
from muster.control.health.conditions import is_heal_due, is_mere, waits_for_turn
from muster.control.health.entity import Incident
from muster.control.health.incidents import Incidents
from muster.control.health.ladder import Heal, words
from muster.control.health.lifecycle import IncidentLifecycle
from muster.control.health.rebooting.effects import ANSWER_S, RebootMachine
from muster.control.health.room import Room
from muster.control.health.turns import why_no_turn
from muster.core.health.service import Service, ServiceName
from muster.core.health.verdict import unknown
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_health import (
    HealthHealed,
    HealthHealFailed,
    HealthNotBack,
    HealthNotEmpty,
    HealthSilent,
    HealthUnknown,
    HealthWaitsEmpty,
)
from muster.core.states import AgentStatus
from muster.core.states.health import HealthStatus
from muster.store.records import Agent

_H = HealthStatus
_CHECK = "health"
_ASKS = RetryPolicy(max_tries=2, backoff_s=ANSWER_S, longest_backoff_s=ANSWER_S)
"""How often a hard reboot is asked for while nobody answers: the wish or its answer may be lost,
but a machine that boots is not to be rebooted again and again."""


class _OfMachines(LifecycleHandler[Incident]):
    """A handler of incidents that acts on their machines."""

    entity = Incident
    between_tries = True
    transitions = StatusTransitions()

    def __init__(self, incidents: Incidents, lifecycle: IncidentLifecycle, room: Room) -> None:
        self._incidents = incidents
        self._lifecycle = lifecycle
        self._room = room

    def execute(self, targets: Sequence[Incident], work: Work) -> HandlerResult[Incident]:
        result: HandlerResult[Incident] = HandlerResult()
        for incident in targets:
            agent = work.live.agents.get(incident.agent_id)
            if agent is None or agent.status is AgentStatus.REMOVED:
                self._lifecycle.gone(work, incident, self.name)
            else:
                self._look_at(incident, agent, result, work)
        return result

    def _look_at(
        self, incident: Incident, agent: Agent, result: HandlerResult[Incident], work: Work
    ) -> None:
        raise NotImplementedError

    def _is_over(self, incident: Incident, work: Work) -> bool:
        """Whether the incident has waited for long enough for what it waits for."""
        over_at = self._lifecycle.over_at(incident)
        return over_at is not None and work.now >= over_at

    def _begin(
        self, incident: Incident, agent: Agent, name: ServiceName, timeout_s: float, work: Work
    ) -> Reason | None:
        """Begin a service, or have the work that is in its way leave; why it cannot begin now, None
        if it has begun."""
        spec = self._lifecycle.spec_of(incident)
        is_check = name is ServiceName.CHECK
        service = Service(
            name,
            devices=() if name is ServiceName.REBOOT else incident.devices,
            level=spec.level,
            checks=spec.checks if is_check else (),
            observe=spec.observe if is_check else (),
            timeout_s=timeout_s,
            why=(incident.reason or incident.why).sentence(),
            clock_ahead_s=-agent.clock_offset_s if is_check else None,
        )
        why = self._lifecycle.begin_service(work, incident, agent, service, self.name)
        if why is not None and incident.has_turn and not is_mere(incident):
            self._room.clear(work, incident, agent, service.devices, self.name)
        return why

    def _empty(
        self, incident: Incident, agent: Agent, devices: Collection[int], work: Work
    ) -> Reason | None:
        """Have the work leave that holds these devices, or any room on the machine if there are
        none; why the machine is not free of it yet. A machine that is away holds up nobody: no work
        there can be stopped."""
        rows = [*work.live.allocations_on.get(agent.id, {}).values()]
        if devices:
            rows = [row for row in rows if any(each.index in devices for each in row.shares)]
        if agent.status is not AgentStatus.ALIVE or not rows:
            return None
        self._room.clear(work, incident, agent, devices, self.name)
        return HealthWaitsEmpty(agent=agent.name, kernels=len(rows))

    def _why_over(self, incident: Incident, agent: Agent, work: Work) -> Reason:
        """Why a machine on which no service could begin is waited for no longer."""
        if agent.status is not AgentStatus.ALIVE:
            silent_s = round(work.now - agent.status_changed_at)
            return HealthSilent(silent_s=silent_s)
        since = incident.leave_by or incident.status_changed_at
        return HealthNotEmpty(waited_s=round(work.now - since))


class CheckMachines(_OfMachines):
    """Has machines checked as soon as their work has left; those that are known to be faulty are
    healed without that, and others wait for their turn."""

    name = "CheckMachines"
    statuses = frozenset({_H.SUSPECT})
    transitions = StatusTransitions(success=TransitionStatus(_H.CHECKING))

    def _look_at(
        self, incident: Incident, agent: Agent, result: HandlerResult[Incident], work: Work
    ) -> None:
        if waits_for_turn(incident) and self._is_over(incident, work):
            self._lifecycle.lapse(work, incident, self.name)
        elif waits_for_turn(incident):
            most = self._lifecycle.most_out(incident.group)
            result.skipped[incident] = (why_no_turn(incident, self._incidents, most),)
        elif incident.has_turn and is_heal_due(incident):
            self._heal(incident, agent, result, work)
        elif incident.has_turn and self._is_over(incident, work):
            self._end_wait(incident, agent, work)
        elif work.may_try(incident):
            self._check(incident, agent, result, work)

    def _heal(
        self, incident: Incident, agent: Agent, result: HandlerResult[Incident], work: Work
    ) -> None:
        """Begin the heal that is due. A machine that is left to an operator has its turn until its
        work has left, and is isolated then, so that no alarm empties all machines at once."""
        step, used = self._lifecycle.next_heal(incident), None
        if step.status is _H.ISOLATED and not self._is_over(incident, work):
            used = self._empty(incident, agent, incident.devices, work)
        if used is not None:
            result.skipped[incident] = (used,)
        else:
            why = incident.reason or incident.why
            self._lifecycle.take(work, incident, step, self.name, why)

    def _end_wait(self, incident: Incident, agent: Agent, work: Work) -> None:
        """Go on with a machine on which no check could begin in time."""
        if self._lifecycle.is_no_reason(work, incident):
            self._lifecycle.let_be(work, incident, self.name)
        else:
            why = self._why_over(incident, agent, work)
            self._lifecycle.beyond_services(work, incident, self.name, why)

    def _check(
        self, incident: Incident, agent: Agent, result: HandlerResult[Incident], work: Work
    ) -> None:
        timeout_s = self._lifecycle.spec_of(incident).check_timeout
        refused = self._begin(incident, agent, ServiceName.CHECK, timeout_s, work)
        if refused is None:
            result.successes.append(incident)
        elif incident.needs_no_turn and work.now >= (incident.leave_by or 0.0):
            self._lifecycle.end_exemption(work, incident, self.name)
        else:
            result.skipped[incident] = (refused,)


class WatchChecks(_OfMachines):
    """Counts a check that does not report in time as one that found out nothing."""

    name = "WatchChecks"
    statuses = frozenset({_H.CHECKING, _H.VERIFYING})

    def _look_at(
        self, incident: Incident, agent: Agent, result: HandlerResult[Incident], work: Work
    ) -> None:
        if incident.acted_at is None:
            return
        service = work.live.sessions.get(incident.session) if incident.session else None
        if service is not None and not self._is_over(incident, work):
            return
        limit_s = self._lifecycle.spec_of(incident).check_timeout
        told = "nothing is known of it any more"
        if service is not None:
            told = f"it did not report within {limit_s:g} s"
            why = HealthUnknown(verdict=told)
            self._lifecycle.stop(work, service, self.name, why)
        self._lifecycle.judge(work, incident, self.name, unknown(_CHECK, told))


class VerifyMachines(_OfMachines):
    """Has machines checked again that were reset or rebooted."""

    name = "VerifyMachines"
    statuses = frozenset({_H.VERIFYING})

    def _look_at(
        self, incident: Incident, agent: Agent, result: HandlerResult[Incident], work: Work
    ) -> None:
        if incident.acted_at is not None:
            return
        if self._is_over(incident, work):
            why = self._why_over(incident, agent, work)
            self._lifecycle.beyond_services(work, incident, self.name, why)
        elif work.may_try(incident):
            timeout_s = self._lifecycle.spec_of(incident).check_timeout
            refused = self._begin(incident, agent, ServiceName.CHECK, timeout_s, work)
            if refused is not None:
                result.skipped[incident] = (refused,)


class ResetDevices(_OfMachines):
    """Has the devices at fault reset. A machine that boots anew meanwhile has its devices reset
    too."""

    name = "ResetDevices"
    statuses = frozenset({_H.RESETTING})

    def _look_at(
        self, incident: Incident, agent: Agent, result: HandlerResult[Incident], work: Work
    ) -> None:
        spec = self._lifecycle.spec_of(incident)
        if has_booted(incident, agent):
            why = HealthHealed(heal="reboot")
            self._lifecycle.stop_service(work, incident, self.name, why)
            self._lifecycle.healed(work, incident, self.name)
        elif self._is_over(incident, work):
            how = f"it was not done within {spec.reset_timeout:g} s"
            if incident.acted_at is None:
                how = self._why_over(incident, agent, work).sentence()
            self._fail(incident, how, work)
        elif incident.acted_at is None:
            refused = self._begin(incident, agent, ServiceName.RESET, spec.reset_timeout, work)
            if refused is not None:
                result.skipped[incident] = (refused,)
        elif incident.session not in work.live.sessions:
            self._fail(incident, "nothing is known of it any more", work)

    def _fail(self, incident: Incident, how: str, work: Work) -> None:
        why = HealthHealFailed(heal=words(incident.heal), how=how)
        self._lifecycle.stop_service(work, incident, self.name, why)
        self._lifecycle.heal_failed(work, incident, self.name, why)


class RebootMachines(_OfMachines):
    """Empties machines and has them reboot, by themselves or from outside. They have rebooted once
    their agent is back with another boot id, and not before."""

    name = "RebootMachines"
    statuses = frozenset({_H.REBOOTING})

    def _look_at(
        self, incident: Incident, agent: Agent, result: HandlerResult[Incident], work: Work
    ) -> None:
        outcome, incident.rebooted = incident.rebooted, None
        if has_booted(incident, agent):
            done = HealthHealed(heal=words(incident.heal))
            self._lifecycle.stop_service(work, incident, self.name, done)
            self._lifecycle.healed(work, incident, self.name)
        elif outcome is not None and outcome.done is False:
            how = outcome.error or "nobody says why"
            why = HealthHealFailed(heal=words(incident.heal), how=how)
            self._lifecycle.heal_failed(work, incident, self.name, why, refused=True)
        elif outcome is not None:
            self._wait(incident, work)
        elif incident.heal is Heal.HARD_REBOOT:
            self._reboot_from_outside(incident, agent, result, work)
        elif self._is_over(incident, work):
            self._give_up(incident, agent, work)
        elif incident.acted_at is None:
            timeout_s = self._lifecycle.spec_of(incident).reboot_timeout
            refused = self._begin(incident, agent, ServiceName.REBOOT, timeout_s, work)
            if refused is not None:
                result.skipped[incident] = (refused,)

    def _reboot_from_outside(
        self, incident: Incident, agent: Agent, result: HandlerResult[Incident], work: Work
    ) -> None:
        is_over, used = self._is_over(incident, work), None
        if incident.acted_at is None and not is_over:
            used = self._empty(incident, agent, (), work)
        if incident.acted_at is not None and is_over:
            self._give_up(incident, agent, work)
        elif used is not None:
            result.skipped[incident] = (used,)
        elif work.may_try(incident):
            self._lifecycle.act(work, incident)
            told = (incident.reason or incident.why).sentence()
            work.emit(RebootMachine(incident.id, incident.generation, agent.id, told))
            if not work.charge_try(incident, _ASKS):
                self._wait(incident, work)

    def _wait(self, incident: Incident, work: Work) -> None:
        """Ask for no other reboot while the machine may be booting."""
        timeout_s = self._lifecycle.spec_of(incident).reboot_timeout
        work.try_later(incident, (incident.acted_at or work.now) + timeout_s)

    def _give_up(self, incident: Incident, agent: Agent, work: Work) -> None:
        heal = words(incident.heal)
        why: Reason
        if incident.acted_at is None:
            how = self._why_over(incident, agent, work).sentence()
            why = HealthHealFailed(heal=heal, how=how)
        else:
            timeout_s = self._lifecycle.spec_of(incident).reboot_timeout
            why = HealthNotBack(heal=heal, timeout_s=timeout_s)
        self._lifecycle.stop_service(work, incident, self.name, why)
        self._lifecycle.heal_failed(work, incident, self.name, why)


class KeepIsolated(FollowingHandler[Incident]):
    """Has the work on isolated machines leave, and slices of pools replaced that have one."""

    name = "KeepIsolated"
    entity = Incident
    statuses = frozenset({_H.ISOLATED})

    def __init__(self, lifecycle: IncidentLifecycle, room: Room) -> None:
        self._lifecycle = lifecycle
        self._room = room

    def follow(self, record: Incident, work: Work) -> None:
        agent = work.live.agents.get(record.agent_id)
        if agent is None or agent.status is AgentStatus.REMOVED:
            self._lifecycle.gone(work, record, self.name)
            return
        self._room.clear(work, record, agent, record.devices, self.name)
        is_own = record.reason is not None and record.reason.code is ReasonCode.HEALTH_ISOLATED_BY
        if self._lifecycle.spec_of(record).replace_isolated and not is_own:
            self._room.replace(work, agent, self.name)


def has_booted(incident: Incident, agent: Agent) -> bool:
    """Whether the machine is back in another boot than that in which its heal began. A mere
    reconnect, or the same boot, tells nothing."""
    is_back = agent.status is AgentStatus.ALIVE and agent.connected
    return is_back and bool(agent.boot_id) and agent.boot_id != incident.boot_id
