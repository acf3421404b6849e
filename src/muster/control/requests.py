"""What people ask for: functions of one wake's work that refuse before they change anything."""

import re
from dataclasses import dataclass

from sqlalchemy import delete, insert

from muster.control.agent.removal import remove
from muster.control.engine.work import Work
from muster.control.job.derive import kill_tasks
from muster.control.naming import MAX_STEM, program_name
from muster.control.session.admission import (
    NONE_ENDED,
    Ended,
    admit,
    by_id,
    check_name,
    check_workdirs,
    find_targets,
    follow,
)
from muster.control.session.board import Board
from muster.control.session.facts import Facts
from muster.control.session.lifecycle import SessionLifecycle
from muster.control.session.start import recall_held_ahead
from muster.control.session.workloads import job_class, workload_class
from muster.core.errors import Conflict, NotFound
from muster.core.ids import AgentId, JobId, SessionId
from muster.core.owner import Owner, Principal
from muster.core.reasons import ReasonCode, reason
from muster.core.results import SchedulingResult
from muster.core.specs import JobSpec, Level, QuotaSpec, ScalingGroup, SessionSpec
from muster.core.states import (
    AgentBar,
    JobState,
    KernelStatus,
    SessionStatus,
    TaskState,
)
from muster.core.task_ranges import TaskRanges
from muster.scheduling.policy import Policy, check_options
from muster.store import schema
from muster.store.load import session_processes
from muster.store.records import Agent, Job, Kernel, Session, Task

PHASE = "Request"
_RETRIED = re.compile(r"-retry-[0-9]+$")


@dataclass(frozen=True, slots=True)
class Retried:
    """A job that has ended and of which tasks are to be run again: all of them, or ``only``."""

    id: JobId
    name: str
    spec: JobSpec
    only: TaskRanges | None


class Requests:
    """Requests against the live cluster; reads of what has ended are SQL's business."""

    def __init__(self, board: Board, sessions: SessionLifecycle, facts: Facts) -> None:
        self._board = board
        self._sessions = sessions
        self._facts = facts
        self._last_number: dict[tuple[Owner, str], int] = {}  # of the names that it has given

    # -- work ----------------------------------------------------------------------------------

    def submit_job(
        self,
        work: Work,
        principal: Principal,
        spec: JobSpec,
        ended: Ended = NONE_ENDED,
        *,
        retry_of: JobId | None = None,
    ) -> Job:
        """A new job, PENDING.

        Args:
            ended: of what it is to start after, that which has ended.
            retry_of: the job of which it runs tasks again.

        Raises:
            NotFound: no such group.
            InvalidSpec: a working directory outside the group's workspaces; what ``admit`` and
                ``find_targets`` refuse.
            Conflict: a live job of the same owner has the name; a quota forbids it.
        """
        group = work.live.group(spec.group)
        check_workdirs(group, [spec])
        id_ = work.ids.job()
        name = spec.name or self._new_name(work, principal.owner, program_name(spec.command))
        check_name(work.live, principal.owner, name)
        targets = find_targets(self._board, principal.owner, spec.after, ended)
        if targets:
            spec = spec.model_copy(update={"after": by_id(spec.after, targets)})
        sessions = 1 if spec.coscheduled else spec.tasks_to_run
        admit(work.live, self._board, job_class(principal.owner, spec), sessions)
        job = Job(
            id=id_,
            name=name,
            owner=principal.owner,
            group=spec.group,
            spec=spec,
            resources=spec.resources.resources(),
            status=JobState.PENDING,
            status_changed_at=work.now,
            tasks_total=spec.tasks_to_run,
            next_task=0,
            counts={},
            submitted_at=work.now,
            retry_of=retry_of,
        )
        follow(self._board, targets)
        work.unit.add_job(job)
        self._board.expanded(job)
        work.mark(job)
        return job

    def retry_job(
        self, work: Work, principal: Principal, of: Retried, ended: Ended = NONE_ENDED
    ) -> Job:
        """A new job that runs tasks of one that has ended again, each under its index.

        Raises:
            Conflict: a job that does so is live already; and what ``submit_job`` raises.
        """
        again = next((job for job in work.live.jobs.values() if job.retry_of == of.id), None)
        if again is not None:
            raise Conflict(f"job {of.name} is being retried already, by {again.name} ({again.id})")
        stem = f"{_RETRIED.sub('', of.name)[:MAX_STEM].rstrip('._-')}-retry"
        named = of.spec.model_copy(
            update={"only": of.only, "name": self._new_name(work, principal.owner, stem)}
        )
        return self.submit_job(work, principal, named, ended, retry_of=of.id)

    def submit_session(
        self, work: Work, principal: Principal, spec: SessionSpec, ended: Ended = NONE_ENDED
    ) -> Session:
        """A new session without a job, PENDING.

        Args:
            ended: of what it is to start after, that which has ended.

        Raises:
            NotFound: no such group.
            InvalidSpec: a working directory outside the group's workspaces; what ``admit`` and
                ``find_targets`` refuse.
            Conflict: a quota forbids it.
        """
        check_workdirs(work.live.group(spec.group), spec.kernels)
        targets = find_targets(self._board, principal.owner, spec.after, ended)
        if targets:
            spec = spec.model_copy(update={"after": by_id(spec.after, targets)})
        session = Session(
            id=work.ids.session(),
            job=None,
            name=spec.name,
            type=spec.type,
            owner=principal.owner,
            group=spec.group,
            priority=spec.priority,
            spec=work.live.shared(spec),
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
            for index, (process, resources) in enumerate(session_processes(session))
        ]
        admit(work.live, self._board, workload_class(session), 1)
        follow(self._board, targets)
        work.unit.add_session(session)
        work.mark(session)
        self._board.session_changed(session)
        return session

    def cancel_job(self, work: Work, principal: Principal, id_: JobId) -> Job:
        """Cancel a job: its tasks are KILLED, their processes stopped.

        Raises:
            NotFound: no such live job of the principal's.
        """
        job = work.live.jobs.get(id_)
        if job is None or not principal.may_change(job.owner):
            raise NotFound(f"there is no live job {id_}")
        why = reason(ReasonCode.CANCELLED, by=principal.owner.user)
        job.reason = why
        work.unit.touch(job)
        if not job.tasks and job.next_task < job.tasks_total:
            # Nothing of it is live: its end hangs on one task that is KILLED.
            self._kill_first(work, job)
        kill_tasks(job, why, work, self._sessions, phase=PHASE)
        work.mark(job)
        return job

    def cancel_session(self, work: Work, principal: Principal, id_: SessionId) -> Session:
        """Cancel a session of its own; a job's sessions end with the job.

        Raises:
            NotFound: no such live session of the principal's.
            Conflict: it belongs to a job.
        """
        session = work.live.sessions.get(id_)
        if session is None or not principal.may_change(session.owner):
            raise NotFound(f"there is no live session {id_}")
        if session.job is not None:
            raise Conflict(f"session {id_} belongs to job {session.job.id}: cancel that")
        why = reason(ReasonCode.CANCELLED, by=principal.owner.user)
        self._sessions.terminate(work, [session], PHASE, why)
        return session

    # -- the cluster ---------------------------------------------------------------------------

    def name_cluster(self, work: Work, id_: str) -> None:
        """Give a new cluster the id that it keeps."""
        work.unit.also(insert(schema.cluster), {"key": "id", "value": id_})

    def put_group(self, work: Work, spec: ScalingGroup) -> ScalingGroup:
        """A new scaling group, or another policy for one.

        Raises:
            InvalidSpec: it has options for a part that it does not use.
            MusterError: it names an unknown plug-in.
        """
        check_options(spec)
        Policy.of(spec)
        groups = schema.groups
        work.unit.also(delete(groups).where(groups.c.name == spec.name))
        work.unit.also(insert(groups), {"name": spec.name, "spec": spec.model_dump_json()})
        work.live.groups[spec.name] = spec
        self._board.group_changed(spec.name)
        for agent in work.live.agents.values():
            if agent.group == spec.name:
                work.mark(agent)  # it may be granted another lease
                work.unit.touch(agent)  # and is to speak more often, or less
        return spec

    def put_quota(self, work: Work, spec: QuotaSpec) -> QuotaSpec:
        """Limits for somebody, in place of those there were."""
        self._write_quota(work, (spec.level, spec.name), spec)
        return spec

    def remove_quota(self, work: Work, level: Level, name: str) -> QuotaSpec:
        """No limits of their own any more.

        Raises:
            NotFound: there were none.
        """
        spec = work.live.quotas.get((level, name))
        if spec is None:
            raise NotFound(f"there is no quota of {level} {name}")
        self._write_quota(work, (level, name), None)
        return spec

    def _write_quota(self, work: Work, key: tuple[Level, str], spec: QuotaSpec | None) -> None:
        quotas = schema.quotas
        level, name = key
        work.unit.also(delete(quotas).where(quotas.c.level == level, quotas.c.name == name))
        if spec is None:
            del work.live.quotas[key]
        else:
            row = {"level": level, "name": name, "spec": spec.model_dump_json()}
            work.unit.also(insert(quotas), row)
            work.live.quotas[key] = spec
        self._board.quotas_changed()
        for agent_id in work.live.held_by:
            recall_held_ahead(work, agent_id, unless=self._board.may_wait_ahead)

    def bar_agent(
        self,
        work: Work,
        principal: Principal,
        id_: AgentId,
        bar: AgentBar | None,
        note: str = "",
        leave_within_s: float | None = None,
    ) -> Agent:
        """Have an agent take nothing new; or, with None, have it take work again.

        Args:
            note: why, in an operator's words.
            leave_within_s: after so long what still runs there is stopped, to run elsewhere.

        Raises:
            NotFound: no such agent.
        """
        agent = work.live.agents.get(id_)
        if agent is None:
            raise NotFound(f"there is no agent {id_} any more")
        leave_by = None if leave_within_s is None else work.now + leave_within_s
        before = agent.barred, agent.bar_note
        agent.barred, agent.bar_note, agent.leave_by = bar, note, leave_by
        work.unit.touch(agent)
        work.mark(agent)
        if before != (bar, note):
            code = ReasonCode.AGENT_BARRED if bar else ReasonCode.AGENT_UNBARRED
            why = reason(code, bar=bar or "", note=note, by=principal.owner.user)
            work.unit.note(agent, PHASE, SchedulingResult.SUCCESS, why)
            self._board.agent_changed(agent)
            if bar is not None:
                recall_held_ahead(work, agent.id)
        return agent

    def remove_agent(
        self, work: Work, principal: Principal, id_: AgentId, *, lost: bool = False
    ) -> Agent:
        """Forget an agent that is gone for good, or that was drained; see ``removal.remove``.

        Raises:
            NotFound: no such agent.
            Conflict: it is alive and takes work, or holds work that is not proven gone.
        """
        agent = work.live.agents.get(id_)
        if agent is None:
            raise NotFound(f"there is no agent {id_} any more")
        remove(work, self._board, self._facts, agent, principal.owner.user, lost=lost)
        return agent

    def _new_name(self, work: Work, owner: Owner, stem: str) -> str:
        """With a number not given before: nobody shall ask for the job of this morning and be told
        of this evening's."""
        number = self._last_number.get((owner, stem), 0) + 1
        while (owner, f"{stem}-{number}") in work.live.job_names:
            number += 1
        self._last_number[owner, stem] = number
        return f"{stem}-{number}"

    def _kill_first(self, work: Work, job: Job) -> None:
        index = job.spec.task_at(job.next_task)
        work.unit.add_task(Task(job, index, TaskState.PENDING, work.now))
        job.next_task += 1
