"""Jobs, tasks and sessions: methods of both clients."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from muster.client.calls import PAGE, body_of
from muster.client.encoding import Ref, json_of, plain_of, ref_of, said_of
from muster.client.exchange import Exchange, Stream, exchange, streaming
from muster.client.exit_code import with_exit_code
from muster.client.moments import with_absolute_moments
from muster.client.output import read_output
from muster.client.patience import PATIENCE_S, WAITING_S
from muster.client.resource import ClientResource, ListingQuery, RecordViews, ResourceCalls, newest
from muster.client.workdir import with_absolute_workdirs
from muster.core.ids import IdKind
from muster.core.verbs.jobs import HOLD_JOB, RELEASE_JOB
from muster.core.views.base import RecordView
from muster.core.views.work import (
    CancelView,
    FailurePage,
    JobDetail,
    JobPage,
    JobView,
    PriorityView,
    SessionDetail,
    SessionPage,
    SessionView,
    ShortOutputs,
    TaskDetail,
    TaskPage,
    WaitView,
)

if TYPE_CHECKING:
    from muster.core.specs.amounts import Spec
    from muster.core.views.placement import PlanView, WhyView


def newest_jobs(
    state: str = "live",
    *,
    name: str | None = None,
    owner: str | None = None,
    group: str | None = None,
    agent: str | None = None,
    limit: int = 100,
) -> ListingQuery:
    """Jobs, newest first.

    Args:
        state: ``live``, ``ended``, ``all``, or one state.
        name: only those of this name, or with ``train*`` of names that begin with ``train``.
        owner: only this user's, or this ``domain/project/user``'s; for admins.
        group: only those of this scaling group.
        agent: only those that hold room of this agent now.
        limit: how many at most.
    """
    listing = newest(state, name=name, owner=owner, group=group, limit=limit)
    return ListingQuery({**listing.filters, "agent": agent}, listing.limit)


JOBS = ClientResource(
    name="job",
    prefix=IdKind.JOB,
    path="/v1/jobs",
    views=lambda: RecordViews(JobView, JobDetail, JobPage),
    listing=newest_jobs,
    is_handed_in=True,
    is_cancelled=True,
    complete=with_exit_code,
)


def newest_sessions(
    state: str = "live",
    *,
    of_jobs: bool = False,
    of_deployments: bool = False,
    name: str | None = None,
    owner: str | None = None,
    group: str | None = None,
    agent: str | None = None,
    limit: int = 100,
) -> ListingQuery:
    """Sessions, newest first; sessions of jobs only with ``of_jobs``, and those that are replicas
    of deployments only with ``of_deployments``. The other arguments are as for jobs."""
    listing = newest(state, name=name, owner=owner, group=group, limit=limit)
    of = {"of_jobs": of_jobs, "of_deployments": of_deployments}
    filters = {**listing.filters, **of, "agent": agent}
    return ListingQuery(filters, listing.limit)


SESSIONS = ClientResource(
    name="session",
    prefix=IdKind.SESSION,
    path="/v1/sessions",
    views=lambda: RecordViews(SessionView, SessionDetail, SessionPage),
    listing=newest_sessions,
    is_handed_in=True,
    is_cancelled=True,
)

LONG_POLL_S = 25.0
"""How long one request waits for a change; proxies tend to cut connections that are silent for 30
s."""


class WorkCalls(ResourceCalls):
    """Plans and the course of work."""

    jobs = JOBS
    sessions = SESSIONS
    hold_job = JOBS.verb(HOLD_JOB)
    release_job = JOBS.verb(RELEASE_JOB)

    @exchange
    def plan(
        self, /, spec: Spec | Mapping[str, Any] | None = None, **fields: Any
    ) -> Exchange[PlanView]:
        """The fate of work if it were handed in now. Nothing is handed in, and nothing changes.

        Args:
            spec, fields: as ``submit``.

        Raises:
            InvalidSpec, Conflict: as ``submit``.
        """
        from muster.core.views.placement import PlanView

        kind, body = body_of(spec, fields)
        body = json_of(msgspec.json.decode(body) | {"kind": kind})
        return self._read(PlanView, self._send("POST", "/v1/plan", body=body))

    @exchange
    def job(self, ref: Ref) -> Exchange[JobDetail]:
        """One job, with its spec, and once it has ended its exit code.

        Raises:
            NotFound: there is no such job of yours.
            Ambiguous: ``ref`` means several; the message names them.
        """
        return self._show(JOBS, ref)

    @exchange
    def work(self, ref: Ref) -> Exchange[JobDetail | SessionDetail]:
        """The job that ``ref`` names, as ``job`` tells it, else the session.

        Raises:
            NotFound, Ambiguous: as ``job``.
        """
        return self._of_any(ref, (JOBS, SESSIONS), lambda resource: self._show(resource, ref))

    @exchange
    def wait(
        self,
        ref: Ref,
        timeout_s: float | None = None,
        on_change: Callable[[JobView], None] | None = None,
    ) -> Exchange[JobView]:
        """Wait until a job has ended, or ``timeout_s`` has passed: look at ``ended``, and at
        ``exit_code``.

        Args:
            on_change: called with the job at first and whenever its state or counts changed.

        Raises:
            NotFound, Ambiguous: as ``job``.
        """
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        told: str | None = None
        first = True
        while True:
            left_s = LONG_POLL_S if until_s is None else max(until_s - time.monotonic(), 0.0)
            # The first answer comes at once. From then on it is this job, even if another gets its
            # name.
            poll_s = 0.0 if first and on_change else min(left_s, LONG_POLL_S)
            patience_s = WAITING_S if timeout_s is None else max(left_s, PATIENCE_S)
            job = yield from self._wait_once(ref, poll_s, told, min(patience_s, WAITING_S))
            if on_change is not None and job.version != told:
                told = job.version
                on_change(job)
            if job.ended or (left_s <= 0 and not first):
                return (yield from with_exit_code(self, job))
            ref, first = job.id, False

    def _wait_once(
        self, ref: Ref, timeout_s: float, since: str | None, patience_s: float
    ) -> Exchange[JobView]:
        asked = self._send(
            "GET",
            JOBS.of(ref, "wait"),
            params={"timeout_s": timeout_s, "since": since},
            patience_s=patience_s,
            extra_s=timeout_s,
        )
        return self._read(JobView, asked)

    @exchange
    def wait_for(
        self,
        *refs: Ref,
        any: bool = False,
        timeout_s: float | None = None,
        on_end: Callable[[RecordView], None] | None = None,
    ) -> Exchange[list[RecordView]]:
        """Wait until all of several pieces of work are over, or ``timeout_s`` has passed: jobs and
        sessions that have ended, and deployments that are healthy or will not be by themselves.

        Returns those that are over, in the order in which they were, each as ``show`` tells it.

        Args:
            any: until one of them is over.
            on_end: called with each as soon as it is over.

        Raises:
            NotFound, Ambiguous: as ``job``; NotFound also where the controller is of a version
                that cannot wait so.
        """
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        left = [ref_of(ref) for ref in refs]
        by_kind = {each.name: each for each in self._resources()}
        over: list[RecordView] = []
        poll_s = 0.0  # names are looked for at once, and stand for the same records from then on
        while left:
            found = (yield from self._wait_once_for(left, poll_s)).items
            left = [each.id for each in found if not each.over]
            for each in found:
                if each.over and not (any and over):
                    over.append((yield from self._show(by_kind[each.kind], each.id)))
                    if on_end is not None:
                        on_end(over[-1])
            left_s = LONG_POLL_S if until_s is None else until_s - time.monotonic()
            if (any and over) or left_s <= 0:
                break
            poll_s = min(left_s, LONG_POLL_S)
        return over

    def _wait_once_for(self, refs: Sequence[str], timeout_s: float) -> Exchange[WaitView]:
        body = json_of({"refs": refs, "timeout_s": timeout_s})
        asked = self._send("POST", "/v1/wait", body=body, patience_s=WAITING_S, extra_s=timeout_s)
        return self._read(WaitView, asked)

    @exchange
    def retry(
        self, ref: Ref, *, failed: bool = False, changes: Mapping[str, Any] | None = None
    ) -> Exchange[JobView]:
        """Run the tasks of an ended job that did not succeed again, as a new job in which they keep
        their indexes; with ``failed`` only the tasks that failed by themselves, not those that were
        stopped with the job.

        Args:
            changes: keys of a JobSpec that take the place of the job's own, such as ``timeout``;
                ``env``, ``resources`` and ``placement`` are put beside those that it has.

        Raises:
            NotFound, Ambiguous: as ``job``.
            InvalidSpec: wrong changes.
            Conflict: the job has not ended, has no such tasks, or is being retried already.
        """
        path, key = JOBS.of(ref, "retry"), {"Idempotency-Key": uuid.uuid4().hex}
        asked: dict[str, Any] = {"failed": failed}
        if changes:  # an older controller knows none
            asked["changes"] = with_absolute_workdirs(plain_of(with_absolute_moments(changes)))
        body = json_of(asked)
        return self._read(JobView, self._send("POST", path, body=body, headers=key))

    @exchange
    def reprioritise(self, ref: Ref, priority: int) -> Exchange[PriorityView]:
        """Give a job with all of its tasks, or a session of its own, another priority, from 0 to
        100. It counts from now on: in the queue, and for what may displace running work.

        Raises:
            NotFound, Ambiguous: as ``job``.
            Conflict: it has ended, or is a session of a job.
            InvalidSpec: no such priority.
        """
        body = json_of({"priority": priority})

        def ask(of: ClientResource[Any, Any, Any]) -> Exchange[PriorityView]:
            sent = self._send("POST", of.of(ref, "reprioritise"), body=body)
            return self._read(PriorityView, sent)

        return self._of_any(ref, (JOBS, SESSIONS), ask)

    @exchange
    def tasks(
        self,
        ref: Ref,
        state: str | None = None,
        *,
        failed: bool = False,
        where: Mapping[str, object] | None = None,
        offset: int = 0,
        limit: int = 100,
    ) -> Exchange[TaskPage]:
        """A job's tasks by index with their latest attempts, from the ``offset``-th on; of one
        ``state`` if it is given, or only tasks that ``failed`` by themselves; only those with the
        values ``where`` of their parameters.

        At most ``PAGE`` (1,000) at a time; ``total`` counts all of them.
        """
        path = JOBS.of(ref, "tasks")
        values = [f"{name}={said_of(value, name)}" for name, value in (where or {}).items()]
        return self._get(
            TaskPage,
            path,
            state=state,
            failed=failed,
            where=values or None,
            offset=offset,
            limit=min(limit, PAGE),
        )

    @exchange
    def failures(self, ref: Ref) -> Exchange[FailurePage]:
        """A job's failed tasks, grouped by how they failed."""
        return self._get(FailurePage, JOBS.of(ref, "failures"))

    @exchange
    def task(self, ref: Ref, index: int) -> Exchange[TaskDetail]:
        """One task, with its attempts."""
        return self._get(TaskDetail, JOBS.of(ref, f"tasks/{index}"))

    @exchange
    def cancel_task(self, ref: Ref, index: int) -> Exchange[CancelView]:
        """Stop one task of a job, whose other tasks go on; one that has ended already is left as it
        is. A job of which all tasks are stopped so is cancelled.

        Raises:
            NotFound, Ambiguous: as ``job``; NotFound also when there is no such task.
            Conflict: the job is a gang, which is cancelled whole.
        """
        return self._read(CancelView, self._send("POST", JOBS.of(ref, f"tasks/{index}/cancel")))

    @exchange
    def why_task(self, ref: Ref, index: int) -> Exchange[WhyView]:
        """Why a task is in its state; while it waits, why its session or its job waits."""
        from muster.core.views.placement import WhyView

        return self._get(WhyView, JOBS.of(ref, f"tasks/{index}/why"))

    @exchange
    def session(self, ref: Ref) -> Exchange[SessionDetail]:
        """One session, with its kernels."""
        return self._show(SESSIONS, ref)

    @exchange
    def short_outputs(self, ref: Ref, tasks: Iterable[int]) -> Exchange[ShortOutputs]:
        """The present outputs of the latest attempts of up to ``MAX_SHORT_OUTPUTS`` (200) tasks, as
        far as they are short and can be had at once; ``logs`` reads the others, and says of which
        there is none.

        Raises:
            NotFound, Ambiguous: as ``job``; NotFound also where the controller is of a version
                that has no such answer.
        """
        from muster.core.task_ranges import TaskRanges

        asked = str(TaskRanges.of((each, each) for each in tasks))
        return self._get(ShortOutputs, JOBS.of(ref, "outputs"), tasks=asked)

    @streaming(bytes)
    def logs(
        self,
        ref: Ref,
        *,
        task: int = 0,
        attempt: int | None = None,
        tail_bytes: int | None = None,
        follow: bool = False,
        stderr: bool = False,
        retries: bool | None = None,
        on_cut: Callable[[int], None] | None = None,
    ) -> Stream:
        """The output of a job's task, piece by piece.

        Args:
            attempt: from 1; the latest when left out.
            tail_bytes: only the last so many bytes; with 0 only what is written from now on.
            follow: go on until the task has ended; wait for it if it has not started.
            stderr: what it wrote to stderr alone, where its spec has ``stderr: apart``.
            retries: with ``follow``, go on through later attempts, even attempts that are over; the
                default when no ``attempt`` is given.
            on_cut: called with the number of bytes before the next piece that are gone, because an
                agent keeps only a part of a long output. With ``tail_bytes`` it is called when all
                has been read, if the output that is kept has not so many.

        Raises:
            NotFound, Ambiguous: as ``job``; NotFound also when there is no such task or attempt.
            Conflict: the task has not started, and ``follow`` is not set.
            AgentUnreachable: the output is on a machine that does not answer. Where later attempts
                follow, it is raised after their output.
        """
        return read_output(
            self._open,
            JOBS.of(ref, "logs"),
            {"task": task},
            attempt=attempt,
            tail_bytes=tail_bytes,
            follow=follow,
            stderr=stderr,
            retries=follow and (attempt is None if retries is None else retries),
            on_cut=on_cut,
        )

    @streaming(bytes)
    def session_logs(
        self,
        ref: Ref,
        *,
        kernel: int = 0,
        tail_bytes: int | None = None,
        follow: bool = False,
        stderr: bool = False,
        on_cut: Callable[[int], None] | None = None,
    ) -> Stream:
        """The output of a session's kernel; arguments and errors are as for ``logs``."""
        return read_output(
            self._open,
            SESSIONS.of(ref, "logs"),
            {"kernel": kernel},
            attempt=None,
            tail_bytes=tail_bytes,
            follow=follow,
            stderr=stderr,
            retries=False,
            on_cut=on_cut,
        )
