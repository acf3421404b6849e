"""The answer of `muster why` about an incident: its state, what is waited for, and until when."""

from collections.abc import Iterator

from sqlalchemy import Connection

from muster.control.agent.explanation import AgentHealthAnswer
from muster.control.engine.module import Parts
from muster.control.health.conditions import is_heal_due, is_known_faulty, waits_for_turn
from muster.control.health.entity import Incident
from muster.control.health.incidents import Incidents
from muster.control.health.ladder import Heal, most_out
from muster.control.health.lifecycle import IncidentLifecycle
from muster.control.health.limits import MAY_STAY_S
from muster.control.health.turns import why_no_turn
from muster.core.health import sentences
from muster.core.owner import Principal
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_health import HealthNoCheck
from muster.core.specs.health import HealthSpec
from muster.core.states.health import HealthStatus
from muster.core.views.base import ReasonView
from muster.core.views.health import IncidentView
from muster.core.views.placement import WhyView
from muster.store.live import Live

_TOLD_ANEW = frozenset({ReasonCode.HEALTH_WAITS_TURN, ReasonCode.HEALTH_WAITS_EMPTY})
"""Reasons with numbers that may have changed since; the present ones are told in their place."""
_ALIKE = 100
"""Characters by which a check's sentence is known in a reason."""


def explain_incident(live: Live, parts: Parts, incident: Incident, now: float) -> WhyView:
    """Why an incident that has not ended is in its state."""
    return WhyView(
        subject=incident.id,
        status=incident.status,
        verdict=_verdict(incident, now),
        details=tuple(_details(live, parts, incident, now)),
        reasons=tuple(map(ReasonView.of, _reasons(parts, incident))),
    )


def explain_ended_incident(
    connection: Connection, principal: Principal, incident: IncidentView, now: float
) -> WhyView:
    """How an incident ended."""
    lasted_s = (incident.finished_at or now) - incident.began_at
    verdict = sentences.ended(incident.agent, incident.status, lasted_s, incident.rounds)
    checks = (sentences.last_check(now - each.at, each.sentence) for each in incident.checks[-1:])
    return WhyView.of_ended(incident, verdict, details=(incident.why.sentence, *checks))


def health_of(live: Live, parts: Parts, incident: Incident, now: float) -> AgentHealthAnswer:
    """The sentences about its incident in the answer about an agent."""
    details = _verdict(incident, now), *_details(live, parts, incident, now)
    waits = incident.status is not HealthStatus.ISOLATED and incident.leave_by is not None
    until = (incident.leave_by or 0.0) + MAY_STAY_S if waits else None
    return AgentHealthAnswer(details, tuple(_reasons(parts, incident)), until)


def missing_checks(live: Live, group: str) -> list[Reason]:
    """The checks that a group names and connected agents of it lack, as far as these tell."""
    health = live.groups[group].health
    if health is None or not health.checks:
        return []
    agents = [
        each
        for each in live.agents.values()
        if each.group == group and each.connected and each.checks
    ]
    found: list[Reason] = []
    for check in health.checks:
        lack = [each.name for each in agents if check not in each.checks]
        if lack:
            agent = min(lack)
            found.append(HealthNoCheck(check=check, group=group, agents=len(lack), agent=agent))
    return found


def may_be_out(spec: HealthSpec | None, machines: int) -> int:
    """How many of a group's machines incidents may keep out of work at a time."""
    return most_out(machines, (spec or HealthSpec()).max_unhealthy)


def _verdict(incident: Incident, now: float) -> str:
    return sentences.incident(incident.agent, incident.status, now - incident.status_changed_at)


def _reasons(parts: Parts, incident: Incident) -> Iterator[Reason]:
    """The reasons for its wait and for its status, and the suspicion with which it began."""
    if waits_for_turn(incident):
        lifecycle = parts[IncidentLifecycle]
        spec, machines = lifecycle.spec_of(incident), lifecycle.machines_of(incident.group)
        yield why_no_turn(incident, parts[Incidents], may_be_out(spec, machines))
    last = incident.reason
    if last is not None and last != incident.why and last.code not in _TOLD_ANEW:
        yield last
    yield incident.why


def _details(live: Live, parts: Parts, incident: Incident, now: float) -> Iterator[str]:
    """The wait and its end, the heals that were tried, and the findings of the last check."""
    lifecycle = parts[IncidentLifecycle]
    if incident.status is HealthStatus.ISOLATED:
        yield sentences.isolated()
        yield from _work_left(live, incident, now)
    elif waits_for_turn(incident):
        if incident.progress.unknowns and not is_known_faulty(incident):
            yield sentences.check_needs_turn()
    elif incident.acted_at is None:
        yield from _waits(live, incident, now)
    else:
        over_at = lifecycle.over_at(incident)
        left_s = 0.0 if over_at is None else over_at - now
        yield _under_way(incident, now - incident.acted_at, left_s)
    yield from _so_far(incident, lifecycle.spec_of(incident), now)


def _waits(live: Live, incident: Incident, now: float) -> Iterator[str]:
    """The wait of a machine that is out of work before it is checked or healed."""
    yield from _work_left(live, incident, now)
    if incident.retry_at > now:
        yield sentences.tried_again(_next(incident), incident.retry_at - now)
    else:
        yield sentences.soon(_next(incident))


def _work_left(live: Live, incident: Incident, now: float) -> Iterator[str]:
    held = live.allocations_on.get(incident.agent_id, {})
    if held and incident.leave_by is not None:
        yield sentences.work_leaves(len(held), incident.leave_by - now)


def _next(incident: Incident) -> str:
    """The next treatment of the machine, as a participle."""
    if incident.status is HealthStatus.RESETTING:
        return "reset"
    heals = incident.status is HealthStatus.SUSPECT and is_heal_due(incident)
    return "healed" if heals or incident.status is HealthStatus.REBOOTING else "checked"


def _under_way(incident: Incident, for_s: float, left_s: float) -> str:
    """The step that is under way, and until when it may be.

    Args:
        left_s: the rest of its time.
    """
    if incident.status is HealthStatus.REBOOTING:
        return sentences.rebooting(for_s, left_s, hard=incident.heal is Heal.HARD_REBOOT)
    what = "the reset" if incident.status is HealthStatus.RESETTING else "the check"
    return sentences.under_way(what, for_s, left_s)


def _so_far(incident: Incident, spec: HealthSpec, now: float) -> Iterator[str]:
    progress = incident.progress
    if progress.rounds:
        yield sentences.rounds(progress.rounds, spec.rounds)
    if progress.unknowns:
        yield sentences.unknowns(progress.unknowns, spec.unknowns)
    told = "" if incident.reason is None else incident.reason.sentence()
    for last in incident.checks[-1:]:
        if last.sentence[:_ALIKE] not in told:  # the reason says it, too, and may cut it
            yield sentences.last_check(now - last.at, last.sentence)
