"""The answer of `muster why`: why work does not start, or what it is doing.

It is found in the live state, so it is never out of date, by the code that decides.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from muster.control.agent.leases import LEASE_MARGIN_S
from muster.control.holders import ahead_of, holdings
from muster.control.placement_view import placement_view
from muster.control.session.barrier import is_closed
from muster.control.session.cluster import ClusterState
from muster.control.session.schedule import cleaning_up
from muster.core.errors import NotFound
from muster.core.ids import AgentId, JobId, SessionId
from muster.core.owner import Principal, Role
from muster.core.reasons import Reason, ReasonCode, reason
from muster.core.states import PLACED_SESSION, KernelStatus, SessionStatus, TaskState
from muster.core.views.base import ReasonView, RecordView
from muster.core.views.placement import HolderView, HoldingView, PlacementView, WhyView
from muster.core.views.work import JobView, SessionView
from muster.scheduling.explain import explain
from muster.scheduling.group_state import GroupState
from muster.scheduling.guard import PluginFault
from muster.scheduling.policy import Policy
from muster.scheduling.workload import SessionWorkload
from muster.store.live import Live
from muster.store.records import Agent, Job, Kernel, Session

T = TypeVar("T")
MOST_MACHINES = 5
"""Machines about which is told something that holds up the tasks of one job."""


@dataclass(slots=True)
class _Found:
    """The findings about one session."""

    reasons: list[Reason] = field(default_factory=list)
    placement: PlacementView | None = None
    held: tuple[HoldingView, ...] = ()
    behind: HolderView | None = None


def explain_job(
    live: Live, cluster: ClusterState, id_: JobId, now: float, asker: Principal | None = None
) -> WhyView:
    """Why a live job has not ended: the reasons of its first waiting session, the states of its
    tasks, and facts about the machines on which they run.

    Args:
        asker: for whom the answer is, which bounds what is told of the work of others; the job's
            owner if left out.

    Raises:
        NotFound: the job is not live.
    """
    job = live.jobs.get(id_)
    if job is None:
        raise NotFound(f"there is no live job {id_}")
    asker = asker or Principal(job.owner, Role.USER)
    waiting = _first_waiting(live, cluster, job)
    found = _Found() if waiting is None else _of_session(live, cluster, waiting, now, asker)
    reasons = found.reasons
    reasons += [why for why in _of_machines(live, job, now) if why not in reasons]
    for task in job.waiting.values():
        if task.kernel_id is not None and task.kernel_id in live.rows_of:
            reasons.append(cleaning_up(task.kernel_id, live))
            break
    queued = cluster.candidates.get(job.id, 0)
    to_come = job.tasks_total - job.next_task
    if to_come:
        reasons.append(reason(ReasonCode.NOT_YET_CANDIDATE, waiting=to_come, candidates=queued))
    return _why(job.id, job.status, _job_verdict(job), found)


def explain_session(
    live: Live, cluster: ClusterState, id_: SessionId, now: float, asker: Principal | None = None
) -> WhyView:
    """Why a live session is in its state.

    Args:
        asker: for whom the answer is, which bounds what is told of the work of others; the
            session's owner if left out.

    Raises:
        NotFound: the session is not live.
    """
    session = live.sessions.get(id_)
    if session is None:
        raise NotFound(f"there is no live session {id_}")
    asker = asker or Principal(session.owner, Role.USER)
    found = _of_session(live, cluster, session, now, asker)
    verdict = f"{session.status.lower()} for {now - session.status_changed_at:.0f} s"
    return _why(session.id, session.status, verdict, found)


def explain_ended_job(job: JobView) -> WhyView:
    """Why a job that has ended did."""
    counts = ", ".join(f"{count} {state}" for state, count in job.counts.items())
    return _ended(job, f"ended {job.state}; its tasks: {counts}", job.reason)


def explain_ended_session(session: SessionView) -> WhyView:
    """Why a session that has ended did."""
    return _ended(session, f"ended {session.status}", session.reason)


def _ended(found: RecordView, verdict: str, why: ReasonView | None) -> WhyView:
    reasons = () if why is None else (why,)
    return WhyView(subject=found.id, status=found.status, verdict=verdict, reasons=reasons)


def _why(id_: str, status: str, verdict: str, found: _Found) -> WhyView:
    return WhyView(
        subject=id_,
        status=status,
        verdict=verdict,
        reasons=tuple(map(ReasonView.of, found.reasons)),
        placement=found.placement,
        held=found.held,
        behind=found.behind,
    )


def _of_machines(live: Live, job: Job, now: float) -> list[Reason]:
    """Reasons about a few of the machines on which the job's tasks run."""
    found: dict[AgentId, Reason] = {}
    for task in job.tasks.values():
        kernel = live.kernels.get(task.kernel_id) if task.kernel_id else None
        if kernel is None or kernel.agent_id is None or kernel.agent_id in found:
            continue
        why = _of_kernel(live, kernel, now) if kernel.status is KernelStatus.RUNNING else None
        if why is not None:
            found[kernel.agent_id] = why
            if len(found) == MOST_MACHINES:
                break
    return list(found.values())


def _first_waiting(live: Live, cluster: ClusterState, job: Job) -> Session | None:
    """The job's first session that does not run yet."""
    group = cluster.groups[job.group]
    for waiting in group.queue if cluster.candidates.get(job.id) else ():
        session = live.sessions[waiting.id]
        if session.job is job:
            return session
    for task in job.tasks.values():
        session_of_task = live.sessions.get(task.session_id) if task.session_id else None
        if session_of_task is not None and session_of_task.status is not SessionStatus.RUNNING:
            return session_of_task
    return None


def _of_session(
    live: Live, cluster: ClusterState, session: Session, now: float, asker: Principal
) -> _Found:
    if session.status is SessionStatus.PENDING:
        return _pending(live, cluster, session, now, asker)
    reasons = [why for kernel in session.kernels if (why := _of_kernel(live, kernel, now))]
    if session.status is SessionStatus.CREATING and is_closed(session):
        reasons.append(_at_barrier(live, session))
    if session.retry_at > now:
        reasons.append(reason(ReasonCode.RETRY_BACKOFF, seconds=round(session.retry_at - now, 1)))
    if session.reason is not None:
        reasons.append(session.reason)
    return _Found(list(dict.fromkeys(reasons)))


def _pending(
    live: Live, cluster: ClusterState, session: Session, now: float, asker: Principal
) -> _Found:
    group = cluster.groups[session.group]
    waiting = SessionWorkload(session.id, session.created_at, cluster.workload(session))
    context = group.context(now)
    found = with_policy(
        live,
        group,
        lambda policy: explain(waiting, group.queue, group.snapshot, policy, context),
    )
    reasons = [cleaning_up(k.id, live) for k in session.kernels if k.id in live.rows_of][:1]
    if session.reason is not None:
        reasons.append(session.reason)
    return _Found(
        [*found.reasons, *reasons],
        placement_view(found, live, asker.may_see),
        holdings(found, session, live, cluster, asker),
        ahead_of(found, live, asker),
    )


def with_policy(live: Live, group: GroupState, look: Callable[[Policy], T]) -> T:
    """The result of ``look`` under the group's policy, without plug-ins that fail: the next pass
    will go on without them too."""
    policy = group.policy
    while True:
        try:
            return look(policy)
        except PluginFault as fault:
            spec = live.groups[group.snapshot.group]
            refused = (*policy.refused, fault)
            policy = Policy.of(spec, refused, policy)  # each time with one plug-in less


def _at_barrier(live: Live, session: Session) -> Reason:
    """How many of a gang's kernels are ready to run, and which agents the others wait for."""
    held = session.tally.held
    missing = next((kernel for kernel in session.kernels if kernel not in held), None)
    agent = live.agents.get(missing.agent_id) if missing and missing.agent_id else None
    return reason(
        ReasonCode.AT_BARRIER,
        ready=len(held),
        kernels=len(session.kernels),
        agent=agent.name if agent else None,
    )


def _of_silent(agent: Agent, now: float) -> Reason:
    numbers: dict[str, Any] = {"agent": agent.name, "silent_s": round(now - agent.seen_at)}
    lost_at = agent.leased_until + LEASE_MARGIN_S
    if math.isfinite(lost_at):
        numbers["ends_in_s"] = max(round(lost_at - now), 1)
    elif lost_at > now:
        numbers["endless"] = 1
    return reason(ReasonCode.AGENT_UNREACHABLE, **numbers)


def _of_kernel(live: Live, kernel: Kernel, now: float) -> Reason | None:
    """The reason that holds a placed kernel up, if any."""
    agent = live.agents.get(kernel.agent_id) if kernel.agent_id else None
    if agent is None:
        return kernel.failure
    if not agent.connected:
        return _of_silent(agent, now)
    if agent.leave_by is not None and kernel.session.status is SessionStatus.RUNNING:
        in_s = max(round(agent.leave_by - now), 0)
        return reason(ReasonCode.TO_LEAVE, agent=agent.name, note=agent.bar_note, in_s=in_s)
    row = live.ledger.get((kernel.id, kernel.generation))
    if row is not None and not row.charged and kernel.session.status in PLACED_SESSION:
        return reason(ReasonCode.BEHIND_SHAPE, agent=agent.name)
    return kernel.failure


def _job_verdict(job: Job) -> str:
    done = job.counts.get(TaskState.SUCCEEDED, 0)
    running = job.counts.get(TaskState.RUNNING, 0)
    assigned = job.counts.get(TaskState.ASSIGNED, 0) + job.counts.get(TaskState.BUILDING, 0)
    waiting = job.tasks_total - job.next_task + job.counts.get(TaskState.PENDING, 0)
    failed = job.tasks_total - done - running - assigned - waiting
    parts = [
        f"{count} {what}"
        for count, what in (
            (done, "done"),
            (running, "running"),
            (assigned, "being started"),
            (waiting, "waiting"),
            (failed, "ended otherwise"),
        )
        if count
    ]
    tasks = "1 task" if job.tasks_total == 1 else f"{job.tasks_total} tasks"
    return f"{tasks}: {', '.join(parts)}"
