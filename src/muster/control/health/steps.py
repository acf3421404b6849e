"""The steps of an incident: what follows a verdict, a heal that ended or failed, and a limit that
passed, and what that means for the machine's work (design: Machine health)."""

from collections.abc import Iterable
from dataclasses import replace

from muster.control.engine.handler import TransitionStatus
from muster.control.engine.lifecycle import Lifecycle
from muster.control.engine.work import Move, Work
from muster.control.health import ladder
from muster.control.health.conditions import (
    found,
    ill_of,
    is_known_faulty,
    is_out_of_work,
    waits_for_turn,
    with_faults,
)
from muster.control.health.entity import MAX_CHECKS, CheckRecord, Incident
from muster.control.health.incidents import Incidents
from muster.control.health.ladder import Bounds, Heal, Step, words
from muster.control.health.limits import (
    CHECK_AGAIN,
    EMPTY_S,
    LOOK_S,
    MOST_UNKNOWN,
    UNPROVEN_S,
    leave_looks,
    limit_of,
)
from muster.control.health.rebooting.means import HardReboots
from muster.control.session.cluster.state import ClusterState
from muster.control.session.handlers.start import recall_prefilled
from muster.control.session.services import Services
from muster.core.health.remedy import Remedy, strongest
from muster.core.health.service import Service
from muster.core.health.verdict import CheckResult, Verdict, bounded
from muster.core.reasons import Reason
from muster.core.reasons.of_health import (
    HealthForOperator,
    HealthGaveUp,
    HealthHealed,
    HealthLapsed,
    HealthLetBe,
    HealthManyUnknown,
    HealthRemoved,
    HealthUnchecked,
    HealthUnknown,
    HealthUnproven,
)
from muster.core.results import SchedulingResult
from muster.core.specs.health import HealthSpec
from muster.core.states import AgentStatus
from muster.core.states.health import HEALTH_TABLE, HealthStatus
from muster.store.live import Live
from muster.store.records import Agent, Session

_H = HealthStatus
_NO_HEALTH = HealthSpec()  # of a group that has none: operators may still have machines checked
_MAX_TOLD = 400
_MAX_REST = 4000


class HealthSteps(Lifecycle[Incident]):
    """Leads incidents from step to step."""

    entity = Incident

    def __init__(
        self,
        live: Live,
        cluster: ClusterState,
        services: Services,
        reboots: HardReboots,
        incidents: Incidents,
    ) -> None:
        self._live = live
        self._cluster = cluster
        self._services = services
        self._reboots = reboots
        self._incidents = incidents

    # -- what checks and heals come to ---------------------------------------------------------

    def judge(self, work: Work, incident: Incident, phase: str, verdict: Verdict) -> None:
        """Take the step that follows the verdict of a check."""
        self._record(work, incident, verdict)
        if not verdict.checks:
            self._judge_unchecked(work, incident, phase, verdict)
            return
        result, told = verdict.result, verdict.sentence()[:_MAX_TOLD]
        before = incident.progress
        unknowns = before.unknowns + 1 if result is CheckResult.UNKNOWN else 0
        remedy = strongest([before.remedy, verdict.remedy])
        incident.progress = progress = replace(before, unknowns=unknowns, remedy=remedy)
        work.unit.touch(incident)
        if result is not CheckResult.UNKNOWN:
            self._incidents.end_pause(incident)
        if result is CheckResult.FAULTY:
            incident.confirmed = True
            agent = self._live.agents.get(incident.agent_id)
            if agent is not None:
                incident.devices = with_faults(incident, agent, verdict)
        means, bounds = self._means(incident), self._bounds(incident)
        step = ladder.after_check(result, progress, means, bounds)
        why = found(result, told)
        if result is CheckResult.HEALTHY and incident.confirmed and not ladder.is_met(progress):
            step = ladder.heal(progress, means, bounds)
        elif result is CheckResult.UNKNOWN and step is not ladder.CHECK_AGAIN:
            unknown = self._incidents.in_group(incident.group).unknown_at(work.now)
            machines = self.machines_of(incident.group)
            if ladder.many_unknown(unknown, machines):
                why = HealthManyUnknown(
                    agent=incident.agent,
                    group=incident.group,
                    unknown=unknown,
                    machines=machines,
                    verdict=told,
                )
                last = unknowns >= MOST_UNKNOWN
                step = Step(_H.ISOLATED) if last else ladder.CHECK_AGAIN
        if result is CheckResult.UNKNOWN and self._is_in_vain(incident, step):
            self._let_go(work, incident, phase, why)
        else:
            self.take(work, incident, step, phase, why)

    def _judge_unchecked(
        self, work: Work, incident: Incident, phase: str, verdict: Verdict
    ) -> None:
        """Take the step of a machine that has none of the checks. That tells nothing of it, and
        heals nobody: a fault that is known is healed, any other machine takes work again."""
        told = verdict.sentence()[:_MAX_TOLD]
        progress = incident.progress
        if incident.confirmed and not (progress.healed and ladder.is_met(progress)):
            step = ladder.heal(progress, self._means(incident), self._bounds(incident))
            why = HealthUnknown(verdict=told)
            self.take(work, incident, step, phase, why)
        else:
            unchecked = HealthUnchecked(
                told=told, agent=incident.agent, group=incident.group, pause_s=UNPROVEN_S
            )
            self._return_unproven(work, incident, phase, unchecked)

    def _is_in_vain(self, incident: Incident, step: Step) -> bool:
        """Whether an operator would have to look at a machine against which nothing is known."""
        unproven = ladder.is_unproven(incident.progress, confirmed=incident.confirmed)
        return step.status is _H.ISOLATED and unproven

    def _let_go(self, work: Work, incident: Incident, phase: str, why: Reason) -> None:
        """Have a machine take work again of which nothing could be found out, and which could not
        be healed."""
        told = why.sentence()[:_MAX_TOLD]
        in_vain = HealthUnproven(pause_s=UNPROVEN_S, agent=incident.agent, told=told)
        self._return_unproven(work, incident, phase, in_vain)

    def _return_unproven(self, work: Work, incident: Incident, phase: str, why: Reason) -> None:
        """Have a machine take work again without a good verdict; for a while it is checked for
        nothing but a fault."""
        incident.progress = replace(incident.progress, rounds=incident.progress.healed)
        self._incidents.pause(incident, work.now, UNPROVEN_S)
        self.move_to(work, incident, _H.HEALTHY, phase, why, SchedulingResult.GIVE_UP)

    def healed(self, work: Work, incident: Incident, phase: str) -> None:
        """Have a machine that was reset or rebooted checked again."""
        done = incident.progress.healed + 1
        incident.progress = replace(incident.progress, healed=done)
        why = HealthHealed(heal=words(incident.heal))
        self.move_to(work, incident, _H.VERIFYING, phase, why)

    def heal_failed(
        self, work: Work, incident: Incident, phase: str, why: Reason, *, refused: bool = False
    ) -> None:
        """Try a stronger heal, or leave the machine to an operator.

        Args:
            refused: whether the heal failed because whoever was to do it said that it cannot.
        """
        step = ladder.after_failed_heal(
            incident.progress, self._means(incident), self._bounds(incident)
        )
        if refused and self._is_in_vain(incident, step):
            self._let_go(work, incident, phase, why)
        else:
            self.take(work, incident, step, phase, why)

    def beyond_services(self, work: Work, incident: Incident, phase: str, why: Reason) -> None:
        """Go on with a machine on which no service can begin: it is rebooted from outside, or left
        to an operator."""
        last = incident.progress.last
        tried = Heal.REBOOT if last is None else max(last, Heal.REBOOT)
        incident.progress = replace(incident.progress, last=tried)
        self.heal_failed(work, incident, phase, why)
        if incident.status is _H.REBOOTING:  # its work had its time to leave
            incident.leave_by = work.now - EMPTY_S
            self.changed(work, incident)

    def take(self, work: Work, incident: Incident, step: Step, phase: str, why: Reason) -> None:
        """Take a step. One of healing, to which a check without a turn led, needs a turn: it is
        taken at once if one is free, and waits for the machine's turn otherwise."""
        match step.status:
            case _H.HEALTHY:
                self.move_to(work, incident, _H.HEALTHY, phase, why)
            case _H.SUSPECT:
                self._check_again(work, incident, phase, why)
            case _ if not self._has_turn(incident):
                incident.heal = step.heal
                incident.needs_no_turn = False
                incident.leave_by = None
                self.move_to(work, incident, _H.SUSPECT, phase, why)
            case _H.ISOLATED:
                self._give_up(work, incident, phase, why)
            case _:
                self.begin_heal(work, incident, step, phase, why)

    def _has_turn(self, incident: Incident) -> bool:
        """Whether the machine has a turn; a free one for which no other faulty machine waits is
        taken for it."""
        of_group = self._incidents.in_group(incident.group)
        is_free = len(of_group.out) < self.most_out(incident.group)
        if not incident.has_turn and is_free:
            incident.has_turn = not any(map(is_known_faulty, of_group.waiting))
        incident.needs_no_turn = incident.needs_no_turn and not incident.has_turn
        return incident.has_turn

    def _check_again(self, work: Work, incident: Incident, phase: str, why: Reason) -> None:
        incident.needs_no_turn = False
        if incident.status is _H.CHECKING:
            self.move_to(work, incident, _H.SUSPECT, phase, why)
        else:
            incident.reason = why
            work.unit.note(incident, phase, SchedulingResult.NEED_RETRY, why)
        wait_s = CHECK_AGAIN.delay_s(max(1, incident.progress.unknowns))
        work.try_later(incident, work.now + wait_s)
        incident.session = incident.acted_at = None
        leave_s = self.spec_of(incident).leave
        incident.leave_by = work.now + wait_s + leave_s if incident.has_turn else None
        self.changed(work, incident)

    def begin_heal(
        self, work: Work, incident: Incident, step: Step, phase: str, why: Reason
    ) -> None:
        agent = self._live.agents.get(incident.agent_id)
        incident.heal, incident.boot_id = step.heal, "" if agent is None else agent.boot_id
        rounds = incident.progress.rounds + 1
        incident.progress = replace(incident.progress, rounds=rounds, unknowns=0, last=step.heal)
        incident.generation += 1
        if incident.status is not step.status:
            self.move_to(work, incident, step.status, phase, why)
            return
        incident.reason = why
        work.unit.note(incident, phase, SchedulingResult.NEED_RETRY, why)
        work.forget_tries(incident)
        self._enter(work, incident)
        self.changed(work, incident)

    def _give_up(self, work: Work, incident: Incident, phase: str, why: Reason) -> None:
        told = why.sentence()[:_MAX_TOLD]
        given_up: Reason
        if incident.progress.remedy is Remedy.OPERATOR:
            given_up = HealthForOperator(agent=incident.agent, told=told)
        else:
            given_up = HealthGaveUp(
                rounds=incident.progress.rounds, agent=incident.agent, told=told
            )
        self.move_to(work, incident, _H.ISOLATED, phase, given_up, SchedulingResult.GIVE_UP)

    def _record(self, work: Work, incident: Incident, verdict: Verdict) -> None:
        began = work.now if incident.acted_at is None else incident.acted_at
        took_s = round(work.now - began, 1)
        told = verdict.sentence()[:_MAX_TOLD]
        if incident.session is not None:
            rest = bounded(verdict.rest(), _MAX_REST)
            check = CheckRecord(work.now, verdict.result, told, took_s, incident.session, rest)
            incident.checks = (*incident.checks, check)[-MAX_CHECKS:]
        if incident.result is None:
            incident.result = verdict.result
        incident.session = incident.acted_at = None

    def gone(self, work: Work, incident: Incident, phase: str) -> None:
        """End the incident of a machine that was removed."""
        why = HealthRemoved()
        self.stop_service(work, incident, phase, why)
        self.move_to(work, incident, _H.GONE, phase, why)

    def lapse(self, work: Work, incident: Incident, phase: str) -> None:
        """End an incident of which nothing was confirmed, and whose turn did not come."""
        waited_s = round(work.now - incident.status_changed_at)
        self.move_to(work, incident, _H.HEALTHY, phase, HealthLapsed(waited_s=waited_s))

    def let_be(self, work: Work, incident: Incident, phase: str) -> None:
        """End an incident in which nothing but failed tasks spoke against a machine on which
        others' work goes on."""
        waited_s = round(work.now - incident.began_at)
        why = HealthLetBe(waited_s=waited_s)
        self.move_to(work, incident, _H.HEALTHY, phase, why)

    # -- services ------------------------------------------------------------------------------

    def begin_service(
        self, work: Work, incident: Incident, agent: Agent, service: Service, phase: str
    ) -> Reason | None:
        """Begin a service for an incident; why it cannot begin now, or None if it has."""
        began = self._services.begin(work, agent, service, phase)
        if isinstance(began, Reason):
            return began
        incident.session, incident.acted_at = began.id, work.now
        incident.generation += 1
        self.changed(work, incident)
        return None

    def act(self, work: Work, incident: Incident) -> None:
        """Note that a machine is to be rebooted from outside now."""
        incident.acted_at = work.now
        incident.generation += 1
        self.changed(work, incident)

    def begin_again(self, work: Work, incident: Incident) -> None:
        """Have the service of a step begin anew, as if it had not begun."""
        incident.session = incident.acted_at = None
        self.changed(work, incident)

    def note_end(self, work: Work, incident: Incident) -> None:
        """Note that the service that was to reboot a machine is over, as it has to be."""
        incident.session = None
        self.changed(work, incident)

    def stop(self, work: Work, service: Session, phase: str, why: Reason) -> None:
        """Stop a service."""
        self._services.stop(work, service, phase, why)

    def stop_service(self, work: Work, incident: Incident, phase: str, why: Reason) -> None:
        """Stop the service under way, if there is one; nobody waits for what it tells."""
        session = self._live.sessions.get(incident.session) if incident.session else None
        incident.session = incident.acted_at = None
        self.changed(work, incident)
        if session is not None:
            self.stop(work, session, phase, why)

    # -- facts ---------------------------------------------------------------------------------

    def spec_of(self, incident: Incident) -> HealthSpec:
        """The settings of the incident's group."""
        return self._live.groups[incident.group].health or _NO_HEALTH

    def machines_of(self, group: str) -> int:
        """How many agents a group has."""
        return len(self._cluster.groups[group].snapshot)

    def most_out(self, group: str) -> int:
        """How many machines of a group may be out of work for their health at a time."""
        spec = self._live.groups[group].health or _NO_HEALTH
        return ladder.most_out(self.machines_of(group), spec.max_unhealthy)

    def means_of(self, agent: Agent) -> frozenset[Heal]:
        """The means by which a machine can be healed."""
        means = {Heal.REBOOT}
        if agent.devices:
            means.add(Heal.RESET)
        if self._reboots.reaches(agent):
            means.add(Heal.HARD_REBOOT)
        return frozenset(means)

    def _means(self, incident: Incident) -> frozenset[Heal]:
        agent = self._live.agents.get(incident.agent_id)
        return frozenset() if agent is None else self.means_of(agent)

    def _bounds(self, incident: Incident) -> Bounds:
        spec = self.spec_of(incident)
        return Bounds(spec.rounds, spec.unknowns)

    def next_heal(self, incident: Incident) -> Step:
        """The heal of a machine that is known to be faulty."""
        return ladder.heal(incident.progress, self._means(incident), self._bounds(incident))

    # -- consequences of a move ----------------------------------------------------------------

    def move_to(
        self,
        work: Work,
        incident: Incident,
        to: HealthStatus,
        phase: str,
        why: Reason,
        result: SchedulingResult = SchedulingResult.SUCCESS,
    ) -> None:
        move = Move(phase, result, why)
        self.move(work, [incident], HEALTH_TABLE.live, TransitionStatus(to), move)

    def moved(self, work: Work, record: Incident, move: Move) -> None:
        record.reason = move.reason
        if record.status in HEALTH_TABLE.terminal:
            record.finished_at = work.now
            record.has_turn = record.needs_no_turn = False
            record.session = record.leave_by = record.acted_at = None
        elif record.status is _H.ISOLATED:
            record.has_turn = record.needs_no_turn = False
            record.session = record.acted_at = None
            record.leave_by = work.now + self.spec_of(record).leave
        elif record.status is not _H.CHECKING:  # whose service began before the move
            self._enter(work, record)
        self.changed(work, record)

    def _enter(self, work: Work, incident: Incident) -> None:
        """Begin the wait of a status anew."""
        incident.session = incident.acted_at = incident.rebooted = None
        leave_s = self.spec_of(incident).leave
        incident.leave_by = None if waits_for_turn(incident) else work.now + leave_s

    def changed(self, work: Work, incident: Incident) -> None:
        """Keep what follows from an incident in line with it: whether its machine takes work, and
        who has the next turn."""
        incident.is_out = is_out_of_work(incident)
        work.unit.touch(incident)
        work.mark(incident)
        self._incidents.look_at(incident.group)
        agent = self._live.agents.get(incident.agent_id)
        if agent is None or agent.status is AgentStatus.REMOVED:
            return
        ill, before = ill_of(incident), agent.ill
        if ill != before:
            agent.ill = ill
            self._cluster.agent_changed(agent)
            if not before:
                recall_prefilled(work, agent.id)

    # -- time ----------------------------------------------------------------------------------

    def over_at(self, incident: Incident) -> float | None:
        """When the incident has waited for long enough for what it waits for; None if it may wait
        for ever. While its machine is silent that is when the machine has been so for too long."""
        spec = self.spec_of(incident)
        limit = limit_of(incident, spec)
        if limit is None:
            return None
        at = self._incidents.ends_at(*limit)
        agent = self._live.agents.get(incident.agent_id)
        is_silent = agent is not None and agent.status is not AgentStatus.ALIVE
        is_awaited = incident.acted_at is None and not waits_for_turn(incident)
        if agent is not None and is_silent and is_awaited:
            return max(at, self._incidents.ends_at(agent.status_changed_at, spec.reboot_timeout))
        return at

    def deadlines(self, record: Incident, work: Work) -> Iterable[float]:
        yield from leave_looks(record, work.now)
        over_at = self.over_at(record)
        if over_at is not None:
            yield over_at
        if waits_for_turn(record) or record.status is _H.ISOLATED:
            yield work.now + LOOK_S
