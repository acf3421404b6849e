"""Requests about jobs: functions of one wake's work that refuse before they change anything."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from muster.control.engine.owned_work import OwnedWork
from muster.control.engine.work import Work
from muster.control.job.derive import kill_tasks, live_attempts, stop_task
from muster.control.job.holding import held_by
from muster.control.naming import MAX_STEM, program_name
from muster.control.session.admission import (
    NONE_ENDED,
    Ended,
    admit,
    admit_spec,
    check_checkpoints,
    check_name,
    check_priority,
    check_uses,
    check_workdirs,
    find_dependencies,
    highest_priority,
    track_dependencies,
    with_ids,
    within_time_limits,
)
from muster.control.session.cluster.priorities import set_priority, tell_priority
from muster.control.session.cluster.state import ClusterState
from muster.control.session.cluster.workloads import job_class
from muster.control.session.ended_specs import EndedSpecs
from muster.control.session.lifecycle import SessionLifecycle, cancelled
from muster.core.errors import Conflict, NotFound
from muster.core.ids import JobId
from muster.core.owner import Owner, Principal
from muster.core.reasons.of_tasks import TaskStopped
from muster.core.results import SchedulingResult
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, JobState, TaskState
from muster.core.task_ranges import MAX_RANGES, TaskRanges
from muster.store.live import Live
from muster.store.records import Job, Session, Task
from muster.store.spec_columns import spec_size

PHASE = "Request"


def _is_to_come(job: Job, index: int) -> bool:
    """Whether a task of the job has no row yet, and nobody stopped it."""
    if job.next_task >= job.tasks_total or (job.stopped is not None and index in job.stopped):
        return False
    runs = index < job.spec.tasks if job.spec.only is None else index in job.spec.only
    return runs and index >= job.spec.task_at(job.next_task)


_RETRIED = re.compile(r"-retry-[0-9]+$")


@dataclass(frozen=True, slots=True)
class Retried:
    """An ended job that is to be run again: all of its tasks, or ``only`` these.

    Args:
        failed: how many of its tasks had FAILED.
    """

    id: JobId
    name: str
    spec: JobSpec
    only: TaskRanges | None
    failed: int

    @property
    def max_task_failures(self) -> int:
        """The failures that are left to tolerate: those of before are counted on, unless all tasks
        run again."""
        allowed = self.spec.max_task_failures
        return allowed if self.only is None else max(allowed - self.failed, 0)


class JobRequests(OwnedWork):
    """Requests about live jobs; ended jobs are read from SQL.

    Args:
        free_number: see ``Store.free_job_number``.
    """

    plural = "jobs"

    def __init__(
        self,
        cluster: ClusterState,
        sessions: SessionLifecycle,
        ended_specs: EndedSpecs,
        free_number: Callable[[Owner, str, int], int],
    ) -> None:
        self._cluster = cluster
        self._free_number = free_number
        self._sessions = sessions
        self._ended_specs = ended_specs
        self._last_number: dict[tuple[Owner, str], int] = {}  # the last number given, by stem

    def submit(
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
            ended: the ended work among its dependencies.
            retry_of: the job whose tasks it runs again.

        Raises:
            NotFound: no such group.
            InvalidSpec: a working directory lies outside the group's workspaces; its priority is
                too high, or its time limit too long; or ``admit`` or ``find_dependencies`` refuses
                the spec.
            Conflict: a live job of the same owner has the name; a quota forbids it, or the owner
                has too much work that has not ended.
        """
        group = work.live.group(spec.group)
        check_workdirs(group, [spec])
        check_uses(self._cluster, principal.owner, spec.group, [spec], work.now)
        check_checkpoints(group, spec)
        check_priority(work.live, self._cluster, principal, principal.owner, spec)
        spec = within_time_limits(group, spec)
        id_ = work.ids.job()
        name = spec.name or self._new_name(work, principal.owner, program_name(spec.command))
        check_name(work.live, principal.owner, name)
        dependencies = find_dependencies(self._cluster, principal.owner, spec.after, ended)
        if dependencies:
            spec = spec.model_copy(update={"after": with_ids(spec.after, dependencies)})
        sessions = 1 if spec.coscheduled else spec.tasks_to_run
        admit(work.live, self._cluster, job_class(principal.owner, spec), sessions)
        spec_bytes = spec_size(spec)
        admit_spec(work.live, self._cluster, principal.owner, spec_bytes)
        self._ended_specs.pay(work, principal.owner, spec_bytes)
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
            held=held_by(principal, work.now) if spec.hold else None,
            spec_bytes=spec_bytes,
        )
        if spec.name is None or retry_of is not None:
            self._note_number(principal.owner, name)
        track_dependencies(self._cluster, dependencies)
        work.unit.add(job)
        self._cluster.expanded(job)
        work.mark(job)
        return job

    def retry(
        self, work: Work, principal: Principal, of: Retried, ended: Ended = NONE_ENDED
    ) -> Job:
        """Submit a job that runs tasks of an ended one again, each under its index, with the
        priority of the former one or, where that is not allowed any more, the highest that is.

        Raises:
            Conflict: such a job is live already; other errors are those of ``submit``.
        """
        live = next((job for job in work.live.jobs.values() if job.retry_of == of.id), None)
        if live is not None:
            raise Conflict(f"job {of.name} is being retried already, by {live.name} ({live.id})")
        stem = f"{_RETRIED.sub('', of.name)[:MAX_STEM].rstrip('._-')}-retry"
        changed = {
            "only": of.only,
            "hold": False,
            "name": self._new_name(work, principal.owner, stem),
            "max_task_failures": of.max_task_failures,
            "priority": self._allowed(work, principal, of.spec),
        }
        again = of.spec.model_copy(update=changed)
        return self.submit(work, principal, again, ended, retry_of=of.id)

    def owned(self, work: Work, concerned: Callable[[Owner], bool]) -> list[str]:
        return [job.id for job in work.live.jobs.values() if concerned(job.owner)]

    def end(self, work: Work, by: Principal, id_: str) -> None:
        self.cancel(work, by, JobId(id_))

    def cancel(self, work: Work, principal: Principal, id_: JobId, *, force: bool = False) -> Job:
        """Cancel a job: its tasks are KILLED, their processes stopped.

        Args:
            force: kill its processes at once, also those that are ending already, as they may be
                for a while after the job has ended, whose end stays as it was.

        Raises:
            NotFound: no such live job of the principal's; with ``force``, none with processes
                either.
        """
        job = work.live.jobs.get(id_)
        left = _sessions_of(id_, work.live) if force else []
        if job is None and left:
            job = left[0].job
        if job is None or not principal.may_change(job.owner):
            raise NotFound(f"there is no live job {id_}")
        why = cancelled(principal.owner.user, force=force)
        self._sessions.kill(work, left, PHASE, why)
        if job.status in JOB_TABLE.terminal:
            if job.reason is not None:
                job.reason = replace(job.reason, forced=True)
            work.look_later(left)  # those that have not heard of the job's end yet
            return job
        job.reason = why
        work.unit.touch(job)
        self._ended_specs.pay(work, job.owner, job.spec_bytes)
        if not job.tasks and job.next_task < job.tasks_total:
            # No task of the job is live: one task that is KILLED ends the job.
            self._kill_first(work, job)
        kill_tasks(job, work, self._sessions, phase=PHASE)
        work.mark(job)
        work.must_be_whole = True  # whoever cancels a job is told of its end
        return job

    def stop_task(self, work: Work, principal: Principal, id_: JobId, index: int) -> Job:
        """Stop one task of a job, which is KILLED; the others go on. A job of which all tasks were
        stopped so is cancelled.

        Raises:
            NotFound: no such live job of the principal's, or no such task that has not ended.
            Conflict: the job is a gang, which runs whole; or too many ranges of it are stopped.
        """
        job = work.live.jobs.get(id_)
        if job is None or not principal.may_change(job.owner):
            raise NotFound(f"there is no live job {id_}")
        if job.spec.coscheduled:
            raise Conflict(
                f"the tasks of job {job.name} run together: `muster cancel {job.name}` stops all"
            )
        task = job.tasks.get(index)
        if not (task is not None or _is_to_come(job, index)):
            raise NotFound(f"job {job.name} has no task {index} that has not ended")
        before = () if job.stopped is None else job.stopped.ranges
        stopped = TaskRanges.of((*before, (index, index)))
        if len(stopped.ranges) > MAX_RANGES:
            raise Conflict(f"job {job.name} has {MAX_RANGES} ranges of stopped tasks, the most")
        if len(stopped) == job.tasks_total:
            return self.cancel(work, principal, id_)
        job.stopped = stopped
        work.unit.touch(job)
        why = TaskStopped(index=index, by=principal.owner.user)
        work.unit.note(job, PHASE, SchedulingResult.SUCCESS, why)
        if task is not None:
            stop_task(task, work, self._sessions, PHASE, why)
        work.mark(job)
        return job

    def reprioritise(self, work: Work, principal: Principal, id_: JobId, priority: int) -> int:
        """Give a job another priority, all of its tasks included; the answer is the former one.

        Raises:
            NotFound: no such live job of the principal's.
            InvalidSpec: the priority is higher than the former one, and than allowed.
        """
        job = work.live.jobs.get(id_)
        if job is None or not principal.may_change(job.owner):
            raise NotFound(f"there is no live job {id_}")
        before = job.spec.priority
        if priority > before:
            check_priority(work.live, self._cluster, principal, job.owner, job.spec, priority)
        if priority != before:
            job.spec = job.spec.model_copy(update={"priority": priority})
            job.spec_bytes = spec_size(job.spec)
            work.live.holdings.set_open(job.id, job.owner, job.spec_bytes)
            work.unit.rewrite(job)
            attempts = live_attempts(job, work.live)
            set_priority(work, self._cluster, attempts, priority, job.id)
            tell_priority(work, job, before, priority, principal)
        return before

    def _allowed(self, work: Work, principal: Principal, spec: JobSpec) -> int:
        """The priority of a spec, as far as the principal may give it."""
        if principal.is_admin:
            return spec.priority
        live, owner = work.live, principal.owner
        return min(spec.priority, highest_priority(live, self._cluster, owner, spec.group)[0])

    def _new_name(self, work: Work, owner: Owner, stem: str) -> str:
        """The stem with a number that no live or stored job of the owner's has, so that the name of
        an earlier job never means a later one."""
        number = self._free_number(owner, stem, self._last_number.get((owner, stem), 0))
        while (owner, f"{stem}-{number}") in work.live.job_names:  # of this very wake, it may be
            number = self._free_number(owner, stem, number)
        return f"{stem}-{number}"

    def _note_number(self, owner: Owner, name: str) -> None:
        """Have no later job get the number of one that was accepted under a name made here. A job
        that was refused leaves its number to the next."""
        stem, _, number = name.rpartition("-")
        self._last_number[owner, stem] = int(number)

    def _kill_first(self, work: Work, job: Job) -> None:
        index = job.spec.task_at(job.next_task)
        task = Task(job=job, index=index, status=TaskState.PENDING, status_changed_at=work.now)
        work.unit.add(task)
        job.next_task += 1


def _sessions_of(id_: JobId, live: Live) -> list[Session]:
    """The sessions of a job that have not ended, though the job may have."""
    return [each for each in live.sessions.values() if each.job is not None and each.job.id == id_]
