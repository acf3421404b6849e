"""Jobs and their tasks over HTTP."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any

from fastapi import Header, Query, Request
from msgspec.structs import replace
from pydantic import Field
from starlette.responses import Response

from muster.api.answers import answer, json_answer
from muster.api.bodies import read_spec
from muster.api.context import Call, Caller
from muster.api.listing import Limit
from muster.api.live_views import accepted_job, job_view
from muster.api.openapi import json_body
from muster.api.resource import Resource, Submission
from muster.api.resources.agents import on_agent
from muster.api.verbs import add_verb
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.health.stragglers import StragglerWatch, with_stragglers
from muster.control.job.explanation import (
    explain_ended_job,
    explain_ended_task,
    explain_job,
    explain_task,
    with_what_is_left,
)
from muster.control.job.holding import hold_job, release_job
from muster.control.job.requests import JobRequests, Retried
from muster.control.plan import plan_job
from muster.control.recovery.book import Recoveries
from muster.control.recovery.explanation import with_recovery
from muster.control.session.admission import Ended
from muster.control.session.cluster.state import ClusterState
from muster.control.session.explaining.machines import silence_by_work
from muster.core.errors import Conflict, InvalidSpec, NotFound, Problem
from muster.core.ids import JobId
from muster.core.owner import Principal
from muster.core.specs import MAX_TASKS, JobSpec, parse_spec
from muster.core.specs.amounts import Spec
from muster.core.specs.work import MAX_WAIT_S
from muster.core.states import TaskState
from muster.core.verbs.jobs import HOLD_JOB, RELEASE_JOB
from muster.core.views.placement import PlanView, WhyView
from muster.core.views.work import (
    CancelView,
    FailurePage,
    JobDetail,
    JobPage,
    JobView,
    TaskDetail,
    TaskPage,
    job_version,
)
from muster.store.entities import JOB
from muster.store.live import Live
from muster.store.queries.failures import list_failures, read_to_retry
from muster.store.queries.jobs import all_counts, list_jobs, read_job, read_job_detail
from muster.store.queries.refs import resolve
from muster.store.queries.tasks import TaskFilter, list_tasks, read_task
from muster.store.records import Job

SetHold = Callable[[Work, ClusterState, Principal, JobId], bool]
_HAS_PROCESSES = (TaskState.BUILDING, TaskState.RUNNING)


def _submit(work: Work, parts: Parts, principal: Principal, spec: JobSpec, ended: Ended) -> Job:
    return parts[JobRequests].submit(work, principal, spec, ended)


def _plan(
    live: Live, parts: Parts, principal: Principal, spec: JobSpec, now: float, ended: Ended
) -> PlanView:
    return plan_job(live, parts[ClusterState], principal, spec, now, ended)


def _cancel(work: Work, parts: Parts, principal: Principal, id_: str) -> Job:
    return parts[JobRequests].cancel(work, principal, JobId(id_))


def _kill(work: Work, parts: Parts, principal: Principal, id_: str) -> Job:
    return parts[JobRequests].cancel(work, principal, JobId(id_), force=True)


def _reprioritise(work: Work, parts: Parts, principal: Principal, id_: str, priority: int) -> int:
    return parts[JobRequests].reprioritise(work, principal, JobId(id_), priority)


def _graces_s(job: Job) -> Collection[float]:
    return [job.spec.grace] if any(job.counts.get(state) for state in _HAS_PROCESSES) else ()


def _left(live: Live) -> Mapping[str, int]:
    return {job_id: len(kernels) for job_id, kernels in live.remains().items()}


def _explain(live: Live, parts: Parts, id_: str, now: float, asker: Principal) -> WhyView:
    found = explain_job(live, parts[ClusterState], JobId(id_), now, asker)
    found = with_stragglers(found, parts[StragglerWatch].of_job(JobId(id_)))
    return with_recovery(found, parts[Recoveries].of(live.jobs[JobId(id_)]), now)


def _as_seen(views: Sequence[JobView], call: Caller) -> list[JobView]:
    """Jobs with the GPUs that each task asks for of those which have not ended, and with machines
    of theirs that are not heard."""
    plane = call.api.plane
    live, silence = plane.live.jobs, silence_by_work(plane.live, call.api.clock.now())
    return [
        replace(view, gpu_milli=live[id_].resources.gpu_milli, silence=silence.get(view.id))
        if (id_ := JobId(view.id)) in live
        else view
        for view in views
    ]


JOBS: Resource[Job, JobView] = Resource(
    entity=JOB,
    path="/v1/jobs",
    view=JobView,
    detail=JobDetail,
    page=JobPage,
    left=_left,
    left_of=with_what_is_left,
    view_of=accepted_job,
    read=read_job,
    show=read_job_detail,
    list_of=list_jobs,
    filters=on_agent,
    as_seen=_as_seen,
    named=lambda job: f"job {job.name} ({job.id})",
    submission=Submission(JobSpec, _submit, _plan),
    cancel=_cancel,
    kill=_kill,
    graces_s=_graces_s,
    reprioritise=_reprioritise,
    explain=_explain,
    explain_ended=explain_ended_job,
)

COALESCE_S = 0.1
"""A wait tells of changes no faster than this, but of an end at once."""


class RetrySpec(Spec):
    """A choice of the tasks of a job to run again: only those that ``failed``, or all that did not
    succeed; with ``changes``, keys of a JobSpec in place of the job's own."""

    failed: bool = False
    changes: dict[str, Any] = Field(default_factory=dict)


_KEPT = ("kind", "name", "matrix", "tasks", "only", "coscheduled", "environment")
"""Keys of a job that its retries have too."""
_BESIDE = ("env", "resources", "placement")
"""Keys whose values are put beside the job's own."""


def _changed(spec: JobSpec, changes: Mapping[str, Any]) -> JobSpec:
    """The spec of a retry.

    Raises:
        InvalidSpec: with every problem found.
    """
    if not changes:
        return spec
    if kept := [key for key in _KEPT if key in changes]:
        expected = "a retry runs the same tasks in the same environment: leave it out"
        raise InvalidSpec([Problem(key, repr(changes[key])[:80], expected) for key in kept])
    own = spec.model_dump(mode="json", exclude_defaults=True)
    for key, value in changes.items():
        is_part = key in _BESIDE and isinstance(value, Mapping)
        own[key] = {**own.get(key, {}), **value} if is_part else value
    return parse_spec(JobSpec, own)


@JOBS.router.post(
    "/{ref}/retry", status_code=201, response_model=JobView, openapi_extra=json_body(RetrySpec)
)
async def retry_job(
    request: Request,
    call: Call,
    ref: str,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> Response:
    """Hand in a job that runs tasks of an ended job again, each under its index."""
    call.must_change()
    asked = await read_spec(request, RetrySpec)
    found, only = await call.read(read_to_retry, call.principal, ref, failed=asked.failed)
    spec = _changed(found.spec, asked.changes)
    call.api.plane.check(spec)  # what was allowed once may be so no more
    principal = call.principal.within(found.owner.project)
    failed = found.counts.get(TaskState.FAILED, 0)
    retried = Retried(found.id, found.name, spec, only, failed)

    def retry(work: Work, parts: Parts, ended: Ended) -> Job:
        return parts[JobRequests].retry(work, principal, retried, ended)

    return await JOBS.hand_in(call, principal, found.owner, spec, idempotency_key, retry)


@JOBS.router.get("/{ref}/tasks", response_model=TaskPage)
async def get_tasks(
    call: Call,
    ref: str,
    state: TaskState | None = None,
    failed: Annotated[bool, Query(description="those that failed by themselves")] = False,
    where: Annotated[
        list[str] | None,
        Query(max_length=32, description="those with these values of parameters, as lr=0.1"),
    ] = None,
    offset: Annotated[int, Query(ge=0, le=MAX_TASKS)] = 0,
    limit: Limit = 100,
) -> Response:
    """A job's tasks by index, with their latest attempts."""
    asked = TaskFilter(state, failed, _values(where or ()))
    page = await call.json(list_tasks, call.principal, ref, asked, offset, limit)
    return json_answer(page)


def _values(where: Sequence[str]) -> Mapping[str, str]:
    """
    Raises:
        InvalidSpec: one names no parameter.
    """
    found = {}
    for each in where:
        name, equals, value = each.partition("=")
        if not equals:
            expected = "expected a parameter and its value, such as lr=0.1"
            raise InvalidSpec([Problem("where", repr(each[:80]), expected)])
        found[name] = value
    return found


@JOBS.router.get("/{ref}/failures", response_model=FailurePage)
async def get_failures(call: Call, ref: str) -> Response:
    """A job's failed tasks, grouped by how they failed."""
    return json_answer(await call.json(list_failures, call.principal, ref))


@JOBS.router.get("/{ref}/tasks/{index}", response_model=TaskDetail)
async def get_task(call: Call, ref: str, index: int) -> Response:
    """One task, with its attempts."""
    return json_answer(await call.json(read_task, call.principal, ref, index))


@JOBS.router.post("/{ref}/tasks/{index}/cancel", response_model=CancelView)
async def cancel_task(call: Call, ref: str, index: int) -> Response:
    """Stop one task of a job, whose other tasks go on; one that has ended already stays as it is. A
    job of which all tasks are stopped so is cancelled."""
    call.must_change()
    principal = call.principal
    job = await call.read(read_job, principal, ref)
    said = f"task {index} of job {job.name} ({job.id})"

    def stop(work: Work, parts: Parts) -> Job:
        return parts[JobRequests].stop_task(work, principal, JobId(job.id), index)

    id_ = f"{job.id}/{index}"
    try:
        await call.change(stop)
    except NotFound:
        task = await call.read(read_task, principal, job.id, index)
        ended = f"{said} had ended already: it is {task.state.lower()}"
        return answer(CancelView(id=id_, status=task.state, changed=False, message=ended))
    stopped = f"{said} is stopped"
    return answer(CancelView(id=id_, status=TaskState.KILLED, changed=True, message=stopped))


async def _set_hold(call: Caller, ref: str, change: SetHold) -> Response:
    call.must_change()
    principal = call.principal
    found = await call.read(read_job, principal, ref)
    id_ = JobId(found.id)

    def act(work: Work, parts: Parts) -> Job:
        change(work, parts[ClusterState], principal, id_)
        return work.live.jobs[id_]

    try:
        return answer(job_view(await call.change(act)))
    except NotFound:
        found = await call.read(read_job, principal, found.id)
        ended = f"job {found.name} ({found.id}) has ended: it is {found.status.lower()}"
        raise Conflict(ended) from None


add_verb(JOBS, HOLD_JOB, _set_hold, hold_job)
add_verb(JOBS, RELEASE_JOB, _set_hold, release_job)


@JOBS.router.get("/{ref}/tasks/{index}/why", response_model=WhyView)
async def why_task(call: Call, ref: str, index: int) -> Response:
    """Why a task is in its state; while it waits, why its session or its job waits."""
    job = await call.read(read_job, call.principal, ref)
    task = await call.read(read_task, call.principal, job.id, index)
    name, now, plane = f"{job.name}/{index}", call.api.clock.now(), call.api.plane
    if task.ended:
        return answer(explain_ended_task(task, name, now))
    if plane.is_broken or task.session_id not in plane.live.sessions:
        return await JOBS.why(call, job.id)
    cluster = plane.parts[ClusterState]
    return answer(explain_task(plane.live, cluster, task, name, now, call.principal))


@JOBS.router.get("/{ref}/wait", response_model=JobView)
async def wait_for_job(
    call: Call,
    ref: str,
    timeout_s: Annotated[float, Query(ge=0, le=MAX_WAIT_S)] = 30.0,
    since: Annotated[str | None, Query(max_length=300)] = None,
) -> Response:
    """The job once it has ended, or once its ``version`` is not ``since``, or at the timeout."""
    return answer(await _wait(call, ref, timeout_s, since))


async def _wait(call: Caller, ref: str, timeout_s: float, since: str | None) -> JobView:
    api, principal = call.api, call.principal
    began = asyncio.get_running_loop().time()
    mirror = api.plane.live
    live = mirror.jobs.get(JobId(ref))
    if live is not None and principal.may_see(live.owner):
        id_ = ref
    else:
        live = None
        id_ = await call.read(resolve, JOB, principal, ref)
    of, changes = principal.owner, api.changes
    watched = changes.bell(of, ends=[id_]) if since is None else changes.bell(of, id_)
    with watched as bell:
        while True:
            bell.clear()
            is_committed = not api.plane.is_broken  # all that the mirror holds
            job = api.plane.live.jobs.get(JobId(id_)) if is_committed else None
            if job is not None:
                live, mirror = job, api.plane.live
                version = None if since is None else _version(job)
            elif is_committed and live is not None and api.plane.live is mirror:
                return job_view(live)  # as its end was committed
            else:
                found = await call.read(read_job, principal, id_)
                if found.ended:
                    return found
                version = found.version
            changed = since is not None and version != since
            until = began + min(COALESCE_S if changed else timeout_s, timeout_s)
            if not await changes.wait(bell, until):
                return found if job is None else job_view(job)


def _version(job: Job) -> str:
    return job_version(
        job.status, all_counts(job.counts, job.tasks_total, job.next_task, ended=False)
    )
