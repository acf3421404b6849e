"""How long an incident may wait for what it waits for. Pure functions of the incident and of the
settings of its group (design: Everything is bounded)."""

from collections.abc import Iterable

from muster.control.engine.retries import NO_LIMIT, RetryPolicy
from muster.control.health.conditions import is_known_faulty, waits_for_turn
from muster.control.health.entity import Incident
from muster.core.specs.health import HealthSpec
from muster.core.states.health import HealthStatus

EMPTY_S = 300.0
"""How long work that was told to leave may still be there."""
MAY_STAY_S = EMPTY_S / 2
"""How long services may keep work past the moment at which it has to have left."""
MARGIN_S = 60.0
"""How long a service may take beyond its own limit: it has to be started and reported."""
LAPSE_S = 86_400.0
"""How long a suspicion that nothing confirmed waits for its turn, before it lapses."""
UNPROVEN_S = 7_200.0
"""How long a machine that could neither be checked nor healed takes work before it is checked again
for anything else than a fault."""
LOOK_S = 60.0
"""The time between two looks at a machine that waits for its turn, or that is to be replaced."""
LEAVE_LOOK_S = 1.0
"""The same of one that work has to leave: a deployment may hold it up."""
MOST_UNKNOWN = 12
"""Checks in a row that may find out nothing while they find out nothing on many machines."""

CHECK_AGAIN = RetryPolicy(NO_LIMIT, backoff_s=30.0, longest_backoff_s=3_600.0)
"""The waits before a machine of which nothing was found out is checked again."""


def limit_of(incident: Incident, spec: HealthSpec) -> tuple[float, float] | None:
    """Since when the incident waits for what it waits for now, and how many seconds it may; None
    where there is no limit of its own: a machine that is known to be faulty waits for its turn,
    which comes because each step of those that have one has a limit, and an isolated one waits for
    an operator."""
    match incident.status:
        case HealthStatus.SUSPECT if waits_for_turn(incident):
            is_known = is_known_faulty(incident)
            return None if is_known else (incident.status_changed_at, LAPSE_S)
        case HealthStatus.SUSPECT:
            return _emptied(incident)
        case HealthStatus.CHECKING | HealthStatus.VERIFYING:
            return _acted(incident, spec.check_timeout + MARGIN_S)
        case HealthStatus.RESETTING:
            return _acted(incident, spec.reset_timeout + MARGIN_S)
        case HealthStatus.REBOOTING:
            return _acted(incident, spec.reboot_timeout)
        case _:
            return None


def _acted(incident: Incident, limit_s: float) -> tuple[float, float]:
    if incident.acted_at is None:
        return _emptied(incident)
    return incident.acted_at, limit_s


def _emptied(incident: Incident) -> tuple[float, float]:
    """Work that was to leave is waited for no longer; nor is a service that does not begin."""
    since = incident.status_changed_at if incident.leave_by is None else incident.leave_by
    return max(since, incident.retry_at), EMPTY_S


def leave_looks(incident: Incident, now: float) -> Iterable[float]:
    """When to look whether the work has left a machine that has to."""
    if incident.leave_by is None:
        return
    yield incident.leave_by
    if incident.leave_by <= now < incident.leave_by + EMPTY_S:
        yield now + LEAVE_LOOK_S
