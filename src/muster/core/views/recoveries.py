"""Answers about recoveries: a job's way through faults of its machines."""

from muster.core.states.recovery import RecoveryStatus
from muster.core.views.base import OwnerView, ReasonView, RecordView, View


class RoundAgentView(View):
    """A machine of a failed attempt.

    Args:
        devices: the indexes of the GPUs that the attempt had there.
        incident: the id of the machine's incident; None if there is none.
        result: awaited, healthy, faulty, healed, isolated, gone or unchecked.
        heals: how often it was reset or rebooted.
        said: what the check found; empty if nothing is known.
    """

    agent: str
    agent_id: str
    devices: tuple[int, ...] = ()
    incident: str | None = None
    result: str
    heals: int = 0
    said: str = ""


class RoundView(View):
    """One failed attempt, and what became of it. Times are seconds since the epoch.

    Args:
        why: what began it.
        tasks: the indexes of the tasks that failed; of a gang those that failed first.
        attempt: the number of the first one's attempt.
        began_at: when the failure was seen.
        checked_at: when it was known that a machine is at fault; None if it was not.
        healed_at: when the restart began.
        ended_at: when it was over; None while it is open.
        outcome: how it ended.
        gpus: how many GPUs the attempt held.
    """

    number: int
    why: ReasonView
    tasks: tuple[int, ...]
    attempt: int
    agents: tuple[RoundAgentView, ...]
    began_at: float
    checked_at: float | None = None
    healed_at: float | None = None
    ended_at: float | None = None
    outcome: ReasonView | None = None
    gpus: float = 0.0

    def gpu_hours_lost(self, now: float) -> float:
        """The GPU-hours for which the attempt's GPUs did not work on the job."""
        ended_at = now if self.ended_at is None else self.ended_at
        return self.gpus * max(ended_at - self.began_at, 0.0) / 3600


class RecoveryView(RecordView):
    """The recovery of a job; times are seconds since the epoch.

    Args:
        job: the job's id; ``name`` its name.
        restarts: restarts after faults of machines that failed a task.
        rounds_begun: failed attempts that led to a check.
        agents: the machines of the attempt that is checked, healed or restarted now.
        gpu_hours_lost: by rounds that are over.
        ran_s: how long tasks of the job ran, in seconds, before ``runs_since``.
        runs_since: since when some run; None while none does.
        started_at: when the first of them did.
    """

    job: str
    name: str
    group: str
    owner: OwnerView
    status: RecoveryStatus
    status_changed_at: float
    created_at: float
    finished_at: float | None = None
    restarts: int = 0
    rounds_begun: int = 0
    agents: tuple[str, ...] = ()
    gpu_hours_lost: float = 0.0
    ran_s: float = 0.0
    runs_since: float | None = None
    started_at: float | None = None
    reason: ReasonView | None = None

    def training_ratio(self, now: float) -> float | None:
        """The job's effective training time ratio: the share of the time since its first start in
        which tasks ran. None if it never started."""
        if self.started_at is None:
            return None
        ended_at = now if self.finished_at is None else self.finished_at
        ran_s = self.ran_s + (0.0 if self.runs_since is None else ended_at - self.runs_since)
        since_s = ended_at - self.started_at
        return min(ran_s / since_s, 1.0) if since_s > 0 else 1.0


class RecoveryDetail(RecoveryView):
    """A recovery with its rounds, oldest first; of those that are over the last 16."""

    rounds: tuple[RoundView, ...] = ()


class RecoveryPage(View):
    """Recoveries, newest first. ``next`` continues the listing as ``cursor``; None at its end."""

    items: tuple[RecoveryView, ...]
    next: str | None = None
