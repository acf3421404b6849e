"""Changes of the priority of work that was handed in."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from muster.control.engine.work import Work
from muster.control.session.cluster.displaced import Preemption
from muster.control.session.cluster.state import ClusterState
from muster.core.ids import JobId
from muster.core.owner import Principal
from muster.core.reasons.of_sessions import Reprioritised
from muster.core.results import SchedulingResult
from muster.scheduling.workload import SessionWorkload
from muster.store.entity import Record
from muster.store.live import Live
from muster.store.records import Session

PHASE = "Request"


def set_priority(
    work: Work,
    cluster: ClusterState,
    sessions: Sequence[Session],
    priority: int,
    job: JobId | None = None,
) -> None:
    """Give sessions of one spec, which has this priority already, that priority too, wherever they
    are in their lives; ``job`` is the id of the job to which they belong."""
    for session in sessions:
        session.priority = priority
        work.unit.rewrite(session)
        _tell_victims(work, cluster, session)
    if job is not None:
        cluster.hooks.forget_job(job)
    _tell_placement(cluster, work.live, sessions)


def _tell_victims(work: Work, cluster: ClusterState, session: Session) -> None:
    """Have the reasons of those that leave for the session name its priority, by which a new
    controller knows that they leave for it (``ClusterState._follow_displaced``)."""
    for id_ in cluster.groups[session.group].displacing.get(session.id, ()):
        victim = work.live.sessions.get(id_)
        if victim is not None and isinstance(victim.reason, Preemption):
            victim.reason = replace(victim.reason, priority=session.priority)
            work.unit.touch(victim)


def tell_priority(
    work: Work, record: Record, before: int, after: int, principal: Principal
) -> None:
    """Tell of another priority of work, once: in its own history, and as its own event."""
    work.unit.touch(record)
    by = principal.owner.user
    why = Reprioritised(before=before, after=after, by=by)
    work.unit.note(record, PHASE, SchedulingResult.SUCCESS, why)
    work.mark(record)


def _tell_placement(cluster: ClusterState, live: Live, sessions: Iterable[Session]) -> None:
    """Have placement count the sessions as of their priority: in the queue, in the room that they
    hold, and in the backlogs of agents."""
    changed: dict[str, list[SessionWorkload]] = {}
    for session in sessions:
        workload = cluster.hooks.arriving(session)
        of_group = changed.setdefault(session.group, [])
        of_group.append(SessionWorkload(session.id, session.created_at, workload))
        for kernel in session.kernels:
            for allocation in live.allocations_of.get(kernel.id, ()):
                if not allocation.charged:
                    cluster.shapes.reclassify(allocation, workload)
    for name, some in changed.items():
        cluster.groups[name].reprioritise(some)
