"""The lifecycle of incidents: what puts a machine under suspicion, and what operators decide
(design: Machine health)."""

from collections.abc import Collection
from dataclasses import replace

from muster.control.engine.work import Work
from muster.control.health.conditions import devices_of, is_heal_due, is_mere, united
from muster.control.health.entity import Incident, IncidentId
from muster.control.health.ladder import Heal, Progress, Step
from muster.control.health.steps import HealthSteps
from muster.core.errors import Conflict
from muster.core.health.remedy import Remedy, strongest
from muster.core.health.service import Service, ServiceName
from muster.core.ids import IdKind, JobId
from muster.core.reasons import Reason
from muster.core.results import SchedulingResult
from muster.core.states import SESSION_TABLE, AgentStatus, SessionStatus
from muster.core.states.health import HEALTH_TABLE, HealthStatus
from muster.store.records import Agent

_H = HealthStatus
_ENDS = SESSION_TABLE.terminal | {SessionStatus.TERMINATING}


class IncidentLifecycle(HealthSteps):
    """Begins incidents, and carries out operators' decisions."""

    # -- suspicions ----------------------------------------------------------------------------

    def suspect(
        self,
        work: Work,
        agent: Agent,
        phase: str,
        why: Reason,
        *,
        devices: Collection[int] = (),
        remedy: Remedy = Remedy.CHECK,
        confirmed: bool = False,
        job: JobId | None = None,
        at_once: bool = True,
    ) -> Incident | None:
        """Put a machine under suspicion, or add a further suspicion to its incident.

        Args:
            devices: indexes of the GPUs in question; the machine as a whole if empty.
            remedy: the one that what was seen calls for.
            confirmed: whether the hardware itself, or its driver, says that there is a fault: the
                remedy is then due whatever a check finds.
            job: whose recovery wants the check, of devices that its own attempt held.
            at_once: whether that check needs no turn; any heal does.

        Returns:
            The incident. None if the group's machines are not checked, or the machine waits for an
            operator already and nothing of this is new, or it could not be checked a while ago.
        """
        if agent.status is AgentStatus.REMOVED or self._live.groups[agent.group].health is None:
            return None
        known = devices_of(agent, devices)
        incident = self._incidents.of(agent.id)
        if incident is None:
            is_fault = confirmed or remedy is not Remedy.CHECK
            until = self._incidents.in_group(agent.group).unproven.get(agent.id, 0.0)
            if not is_fault and work.now < until:
                return None
            incident = self._open(work, agent, phase, why, known)
            incident.progress = Progress(remedy=remedy)
            incident.confirmed = confirmed
        else:
            is_new = self._add(work, incident, phase, why, known, remedy, confirmed=confirmed)
            if not is_new and incident.status is _H.ISOLATED:
                return None
        if job is not None and incident.status is not _H.ISOLATED:
            incident.job = job
            if at_once:
                self._exempt(work, incident)
        self.changed(work, incident)
        return incident

    def _open(
        self, work: Work, agent: Agent, phase: str, why: Reason, devices: tuple[int, ...]
    ) -> Incident:
        incident = Incident(
            id=IncidentId(work.ids.new(IdKind.INCIDENT)),
            agent_id=agent.id,
            agent=agent.name,
            group=agent.group,
            status=_H.SUSPECT,
            status_changed_at=work.now,
            why=why,
            devices=devices,
            began_at=work.now,
        )
        work.unit.add(incident)
        work.unit.note(incident, phase, SchedulingResult.SUCCESS, why)
        return incident

    def _add(
        self,
        work: Work,
        incident: Incident,
        phase: str,
        why: Reason,
        devices: tuple[int, ...],
        remedy: Remedy,
        *,
        confirmed: bool,
    ) -> bool:
        """Add a suspicion to an incident; whether it is a new one."""
        all_devices = united(incident.devices, devices)
        progress = replace(incident.progress, remedy=strongest([incident.progress.remedy, remedy]))
        confirmed = confirmed or incident.confirmed
        after = all_devices, progress, confirmed
        is_new = after != (incident.devices, incident.progress, incident.confirmed)
        if not is_new:
            work.unit.skip(incident, phase, (why,))  # equal ones merge
            return False
        incident.devices, incident.progress, incident.confirmed = after
        work.unit.note(incident, phase, SchedulingResult.SUCCESS, why)
        return True

    def _exempt(self, work: Work, incident: Incident) -> None:
        """Have the machine checked for the sake of a job though it has no turn, unless it is known
        to be faulty already."""
        waits = incident.status is _H.SUSPECT and not incident.has_turn
        if waits and not is_heal_due(incident) and not incident.needs_no_turn:
            work.begin_try(incident)
            self._check_without_turn(work, incident)

    def check_if_idle(self, work: Work, incident: Incident) -> None:
        """Have a machine that waits for its turn checked without one where nothing holds what is to
        be checked: that check displaces nobody. So many are checked so at a time as have turns, and
        the others take work meanwhile. A heal needs a turn."""
        agent = self._live.agents.get(incident.agent_id)
        if agent is None or is_heal_due(incident) or not work.may_try(incident):
            return
        beside = self._incidents.in_group(incident.group).beside
        if len(beside) >= self.most_out(incident.group):
            return
        check = Service(ServiceName.CHECK, devices=incident.devices)
        if self._services.refusal(work, agent, check) is None:
            self._check_without_turn(work, incident)
            self.changed(work, incident)

    def _check_without_turn(self, work: Work, incident: Incident) -> None:
        incident.needs_no_turn = True
        incident.leave_by = work.now + self.spec_of(incident).leave

    def give_turn(self, work: Work, incident: Incident) -> None:
        """Have a machine be out of work from now on; the work on it may end by itself for a
        while."""
        incident.has_turn, incident.needs_no_turn = True, False
        incident.leave_by = work.now + self.spec_of(incident).leave
        self.changed(work, incident)

    def end_exemption(self, work: Work, incident: Incident, phase: str) -> None:
        """Have a machine that work did not leave in time wait for its turn. Others' work, which was
        not told to leave, does not leave for what nothing confirms: then the machine is let be."""
        if self.is_no_reason(work, incident):
            self.let_be(work, incident, phase)
            return
        incident.needs_no_turn = False
        incident.leave_by = None
        self.changed(work, incident)

    def is_no_reason(self, work: Work, incident: Incident) -> bool:
        """Whether work goes on that holds what is to be checked, and would have to leave for what
        nothing confirms (``is_mere``)."""
        if not is_mere(incident):
            return False
        for row in work.live.allocations_on.get(incident.agent_id, {}).values():
            kernel = work.live.kernels.get(row.kernel_id)
            goes_on = kernel is not None and kernel.session.status not in _ENDS
            mine = not incident.devices or any(
                share.index in incident.devices for share in row.shares
            )
            if goes_on and mine:
                return True
        return False

    # -- operators' decisions ------------------------------------------------------------------

    def isolate(self, work: Work, agent: Agent, phase: str, why: Reason) -> Incident:
        """Keep a machine out of work until an operator says otherwise."""
        incident = self._decided_on(work, agent, phase, why)
        if incident.status is _H.ISOLATED:
            incident.reason = why
            work.unit.note(incident, phase, SchedulingResult.SUCCESS, why)
            self.changed(work, incident)
        else:
            self.move_to(work, incident, _H.ISOLATED, phase, why)
        return incident

    def return_(self, work: Work, agent: Agent, phase: str, why: Reason) -> Incident | None:
        """Have a machine take work again as it is; None if it has no incident."""
        if self._incidents.of(agent.id) is None:
            return None
        incident = self._decided_on(work, agent, phase, why)
        self.move_to(work, incident, _H.HEALTHY, phase, why)
        return incident

    def check(self, work: Work, agent: Agent, phase: str, why: Reason) -> Incident:
        """Have a machine checked, as if nothing was known of it; it needs no turn.

        Raises:
            Conflict: it is being healed, and is checked afterwards.
        """
        known = self._incidents.of(agent.id)
        if known is not None and known.status in (_H.RESETTING, _H.REBOOTING):
            raise Conflict(
                f"agent {agent.name} {HEALTH_TABLE.words[known.status]}, and is checked afterwards"
            )
        incident = self._decided_on(work, agent, phase, why)
        incident.progress, incident.confirmed, incident.heal = Progress(), False, None
        if incident.status in (_H.CHECKING, _H.ISOLATED):
            self.move_to(work, incident, _H.SUSPECT, phase, why)
        else:
            if known is not None:
                incident.reason = why
                work.unit.note(incident, phase, SchedulingResult.SUCCESS, why)
            work.forget_tries(incident)
        self.give_turn(work, incident)
        return incident

    def heal(self, work: Work, agent: Agent, phase: str, why: Reason) -> Incident:
        """Have a machine rebooted and then checked, whatever was tried before; it needs no turn.

        Raises:
            Conflict: it is being rebooted already.
        """
        known = self._incidents.of(agent.id)
        if known is not None and known.status is _H.REBOOTING:
            raise Conflict(f"agent {agent.name} is being rebooted already")
        incident = self._decided_on(work, agent, phase, why)
        incident.progress = Progress(remedy=Remedy.REBOOT)
        incident.has_turn, incident.needs_no_turn = True, False
        means = self.means_of(agent)
        away = agent.status is not AgentStatus.ALIVE and Heal.HARD_REBOOT in means
        heal = Heal.HARD_REBOOT if away else Heal.REBOOT
        self.begin_heal(work, incident, Step(_H.REBOOTING, heal), phase, why)
        return incident

    def _decided_on(self, work: Work, agent: Agent, phase: str, why: Reason) -> Incident:
        """The machine's incident, new if it has none, with nothing under way: whatever comes of a
        service or a reboot that was is of an older generation."""
        incident = self._incidents.of(agent.id)
        if incident is None:
            return self._open(work, agent, phase, why, ())
        incident.generation += 1
        self.stop_service(work, incident, phase, why)
        return incident
