"""Requests about sessions: functions of one wake's work that refuse before they change anything."""

from muster.control.engine.work import Work
from muster.control.session.admission import (
    NONE_ENDED,
    Ended,
    admit,
    admit_spec,
    check_priority,
    check_uses,
    check_workdirs,
    find_dependencies,
    track_dependencies,
    with_ids,
    within_time_limits,
)
from muster.control.session.cluster.priorities import set_priority, tell_priority
from muster.control.session.cluster.state import ClusterState
from muster.control.session.ended_specs import EndedSpecs
from muster.control.session.lifecycle import SessionLifecycle, cancelled
from muster.core.errors import Conflict, NotFound
from muster.core.ids import SessionId
from muster.core.owner import Principal
from muster.core.specs import SessionSpec
from muster.core.states import KernelStatus, SessionStatus
from muster.store.load import spec_processes
from muster.store.records import Kernel, Session
from muster.store.spec_columns import spec_size

PHASE = "Request"


class SessionRequests:
    """Requests about live sessions; ended sessions are read from SQL."""

    def __init__(
        self, cluster: ClusterState, sessions: SessionLifecycle, ended_specs: EndedSpecs
    ) -> None:
        self._cluster = cluster
        self._sessions = sessions
        self._ended_specs = ended_specs

    def submit(
        self,
        work: Work,
        principal: Principal,
        spec: SessionSpec,
        ended: Ended = NONE_ENDED,
        *,
        is_replica: bool = False,
    ) -> Session:
        """A new session without a job, PENDING.

        Args:
            ended: the ended work among its dependencies.
            is_replica: whether it is one of a deployment, which was admitted as a whole: it has no
                time limit, and its priority was allowed then.

        Raises:
            NotFound: no such group.
            InvalidSpec: a working directory lies outside the group's workspaces; its priority is
                too high, or its time limit too long; or ``admit`` or ``find_dependencies`` refuses
                the spec.
            Conflict: a quota forbids it, or the owner has too much work that has not ended.
        """
        group, owner = work.live.group(spec.group), principal.owner
        check_workdirs(group, spec.kernels)
        if not is_replica:
            check_priority(work.live, self._cluster, principal, owner, spec)
            check_uses(self._cluster, owner, spec.group, spec.kernels, work.now)
            spec = within_time_limits(group, spec)
        dependencies = find_dependencies(self._cluster, principal.owner, spec.after, ended)
        if dependencies:
            spec = spec.model_copy(update={"after": with_ids(spec.after, dependencies)})
        # A refusal comes before the kernels are made, because there may be thousands.
        shared = work.live.shared(spec)
        workload = self._cluster.hooks.handed_in(principal.owner, shared)
        admit(work.live, self._cluster, workload, 1)
        spec_bytes = spec_size(shared)
        admit_spec(work.live, self._cluster, principal.owner, spec_bytes)
        self._ended_specs.pay(work, principal.owner, spec_bytes)
        session = Session(
            id=work.ids.session(),
            job=None,
            name=spec.name,
            type=spec.type,
            owner=principal.owner,
            group=spec.group,
            priority=spec.priority,
            spec=shared,
            spec_bytes=spec_bytes,
            status=SessionStatus.PENDING,
            status_changed_at=work.now,
            created_at=work.now,
            queued_at=work.now,
        )
        session.kernels = [
            Kernel(
                id=work.ids.kernel(),
                session=session,
                index=index,
                process=process,
                resources=resources,
                status=KernelStatus.PENDING,
                status_changed_at=work.now,
            )
            for index, (process, resources) in enumerate(spec_processes(shared))
        ]
        track_dependencies(self._cluster, dependencies)
        work.unit.add(session)
        work.unit.add(*session.kernels)
        work.mark(session)
        self._cluster.session_changed(session)
        return session

    def cancel(
        self, work: Work, principal: Principal, id_: SessionId, *, force: bool = False
    ) -> Session:
        """Cancel a session without a job; a job's sessions end with the job.

        Args:
            force: kill its processes at once, also where they are ending already.

        Raises:
            NotFound: no such live session of the principal's.
            Conflict: the session belongs to a job.
        """
        session = self._alone(work, principal, id_, "cancel that")
        why = cancelled(principal.owner.user, force=force)
        self._ended_specs.pay(work, session.owner, session.spec_bytes)
        self._sessions.terminate(work, [session], PHASE, why)
        if force:
            self._sessions.kill(work, [session], PHASE, why)
        return session

    def reprioritise(self, work: Work, principal: Principal, id_: SessionId, priority: int) -> int:
        """Give a session without a job another priority; the answer is the former one.

        Raises:
            NotFound: no such live session of the principal's.
            Conflict: the session belongs to a job, whose priority it has, or is a service.
            InvalidSpec: the priority is higher than the former one, and than allowed.
        """
        session = self._alone(work, principal, id_, "change the priority of that")
        if session.service is not None:
            raise Conflict(f"session {id_} is a service of a machine, which waits for nothing")
        before, spec = session.priority, session.spec
        if priority > before and spec is not None:
            check_priority(work.live, self._cluster, principal, session.owner, spec, priority)
        if priority != before and spec is not None:
            session.spec = work.live.shared(spec.model_copy(update={"priority": priority}))
            session.spec_bytes = spec_size(session.spec)
            work.live.holdings.set_open(session.id, session.owner, session.spec_bytes)
            set_priority(work, self._cluster, [session], priority)
            tell_priority(work, session, before, priority, principal)
        return before

    def _alone(self, work: Work, principal: Principal, id_: SessionId, instead: str) -> Session:
        """A live session without a job.

        Args:
            instead: the advice where the session has a job.

        Raises:
            NotFound: no such live session of the principal's.
            Conflict: the session belongs to a job.
        """
        session = work.live.sessions.get(id_)
        if session is None or not principal.may_change(session.owner):
            raise NotFound(f"there is no live session {id_}")
        if session.job is not None:
            raise Conflict(f"session {id_} belongs to job {session.job.name}: {instead}")
        return session
