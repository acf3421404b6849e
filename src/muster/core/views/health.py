"""Answers about incidents: stretches of a machine's ill health."""

from muster.core.states.health import HealthStatus
from muster.core.views.base import ReasonView, RecordView, View


class CheckView(View):
    """A completed check of a machine.

    Args:
        at: when it ended, in seconds since the epoch.
        result: healthy, faulty or unknown (``core.health.verdict.CheckResult``).
        sentence: what was found, and by which checks.
        took_s: how long it took, in seconds.
        rest: the findings that the sentence counts only.
    """

    at: float
    result: str
    sentence: str
    took_s: float = 0.0
    rest: str = ""


class IncidentView(RecordView):
    """One stretch of a machine's ill health, from the first suspicion to its verified return; times
    are seconds since the epoch.

    Args:
        agent: the machine's name; ``agent_id`` its id.
        why: the suspicion.
        reason: why it has this status, where there is more to tell than the suspicion.
        devices: the indexes of the GPUs under suspicion; empty for the machine as a whole.
        confirmed: whether a check or the hardware itself found a fault.
        is_out: whether the machine takes no work for its sake.
        job: the name of the job that found it; None where none did, or the caller may not see that
            job.
        remedy: what the fault calls for: check, reset, reboot or operator.
        heal: by which means it was healed last, or is being healed: reset, reboot or hard reboot;
            None before the first.
        rounds: how many heals were tried.
        unknowns: how many checks in a row found out nothing.
        leave_by: when work that is still there has to leave; None where none has to.
        checks: its completed checks, oldest first; only the newest are kept.
    """

    agent: str
    agent_id: str
    group: str
    status: HealthStatus
    status_changed_at: float
    why: ReasonView
    reason: ReasonView | None = None
    devices: tuple[int, ...] = ()
    confirmed: bool = False
    is_out: bool = False
    job: str | None = None
    remedy: str = "check"
    heal: str | None = None
    rounds: int = 0
    unknowns: int = 0
    leave_by: float | None = None
    checks: tuple[CheckView, ...] = ()
    began_at: float
    finished_at: float | None = None


class IncidentPage(View):
    """Incidents, newest first. ``next`` continues the listing as ``cursor``; None at its end."""

    items: tuple[IncidentView, ...]
    next: str | None = None
