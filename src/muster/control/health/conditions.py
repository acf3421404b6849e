"""The conditions of incidents, and the GPUs that they are about. Pure functions."""

from collections.abc import Collection, Sequence

from muster.control.health import ladder
from muster.control.health.entity import Incident
from muster.control.health.ladder import Progress
from muster.core.health.verdict import CheckResult, Severity, Verdict
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_health import HealthFaulty, HealthUnknown, HealthWell
from muster.core.states.health import HEALTH_TABLE, ILL, HealthStatus
from muster.store.records import Agent

_H = HealthStatus


_FOUND = {
    CheckResult.HEALTHY: HealthWell,
    CheckResult.UNKNOWN: HealthUnknown,
    CheckResult.FAULTY: HealthFaulty,
}


def found(result: CheckResult, told: str) -> Reason:
    """The reason that a check found this, in its own words."""
    return _FOUND[result](verdict=told)


def is_heal_due(incident: Incident) -> bool:
    """Whether a machine under suspicion is to be healed without another check: one found it faulty
    before its turn came, or the hardware itself named the remedy."""
    if incident.heal is not None and incident.progress.last is not incident.heal:
        return True
    return incident.confirmed and not ladder.is_met(incident.progress)


def is_known_faulty(incident: Incident) -> bool:
    """Whether a check or the hardware itself found a fault, or the machine counts as faulty because
    check after check found out nothing."""
    return incident.confirmed or is_heal_due(incident)


def waits_for_turn(incident: Incident) -> bool:
    """Whether a machine under suspicion waits for its turn to be emptied, checked or healed."""
    is_exempt = incident.has_turn or incident.needs_no_turn
    return incident.status is _H.SUSPECT and not is_exempt


def is_out_of_work(incident: Incident) -> bool:
    """Whether the machine takes no work. One that waits for its turn takes some unless it is known
    to be faulty: a mere suspicion may be wrong."""
    if incident.status not in HEALTH_TABLE.live:
        return False
    return is_known_faulty(incident) or not waits_for_turn(incident)


_UNPROVEN = (ReasonCode.HEALTH_TASK_FAILED, ReasonCode.HEALTH_SEEN)


def is_mere(incident: Incident) -> bool:
    """Whether nothing but failed tasks, or what an agent saw and nothing confirms, speaks against
    the machine so far. Anybody's program can cause both, so nobody else's work has to leave."""
    only = incident.why.code in _UNPROVEN and incident.reason is None
    return only and not incident.confirmed and incident.progress == Progress()


def ill_of(incident: Incident) -> str:
    """Why the machine takes no work; empty if it may."""
    return ILL[incident.status] if is_out_of_work(incident) else ""


def united(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """The GPUs of both; no GPU stands for all of the machine."""
    return tuple(sorted({*one, *other})) if one and other else ()


def devices_of(agent: Agent, devices: Collection[int]) -> tuple[int, ...]:
    """These GPUs; all of the machine if the agent does not have one of them (any more)."""
    has = {device.index for device in agent.devices}
    return tuple(sorted(set(devices))) if has.issuperset(devices) else ()


def with_faults(incident: Incident, agent: Agent, verdict: Verdict) -> tuple[int, ...]:
    """The GPUs under suspicion with those that a check found faulty."""
    faults = (each for each in verdict.findings if each.severity is Severity.FAULT)
    found = {each.device for each in faults if each.device is not None}
    return united(incident.devices, devices_of(agent, found)) if found else incident.devices
