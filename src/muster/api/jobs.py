"""Jobs and their tasks over HTTP."""

import asyncio
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from muster.api.answers import answer, json_answer
from muster.api.bodies import read_spec
from muster.api.context import Call, Caller
from muster.api.listing import Cursor, Group, Limit, Name, OwnerOf, State, states_of
from muster.api.live_views import grace_left, job_view
from muster.api.openapi import spec_body
from muster.api.targets import knowing_ended
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.job.requests import JobRequests, Retried
from muster.control.session.admission import Ended
from muster.control.session.cluster import ClusterState
from muster.core.errors import InvalidSpec, NotFound, Problem
from muster.core.ids import JobId
from muster.core.owner import Principal
from muster.core.specs import MAX_TASKS, JobSpec
from muster.core.specs.amounts import Spec
from muster.core.states import JOB_TABLE, TaskState
from muster.core.views.placement import WhyView
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
from muster.store.queries.listing import Listing
from muster.store.queries.refs import resolve
from muster.store.queries.tasks import list_tasks, read_task
from muster.store.records import Job

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

COALESCE_S = 0.1
"""A wait tells of changes no faster than this, but of an end at once."""
MAX_WAIT_S = 60.0
_HAS_PROCESSES = (TaskState.BUILDING, TaskState.RUNNING)


@router.post("", status_code=201, response_model=JobView, openapi_extra=spec_body(JobSpec))
async def submit_job(
    request: Request,
    call: Call,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> Response:
    """Hand in a job. With the key of an earlier submission the answer is that job, with status
    200."""
    call.must_change()
    spec = await read_spec(request, JobSpec)
    call.api.plane.check(spec)
    principal = call.principal.within(spec.project)

    async def hand_in(ended: Ended) -> Job | str:
        submit = partial(_submit, principal=principal, spec=spec, ended=ended)
        return await call.api.submissions.once(
            principal.owner, idempotency_key, call.still_allowed(submit)
        )

    return await _accepted(call, await knowing_ended(call, principal.owner, spec, hand_in))


async def _accepted(call: Caller, job: Job | str) -> Response:
    """The answer to a submission: a new job, or the id of one that was handed in before."""
    if isinstance(job, Job):
        return answer(job_view(job), 201)
    return json_answer(await call.json(read_job, call.principal, job))


def _submit(work: Work, parts: Parts, *, principal: Principal, spec: JobSpec, ended: Ended) -> Job:
    known_group(work.live, spec.group)
    return parts[JobRequests].submit(work, principal, spec, ended)


def known_group(live: Live, group: str) -> None:
    """
    Raises:
        InvalidSpec: there is no such group, which is a problem of the spec and so not NotFound.
    """
    try:
        live.group(group)
    except NotFound as error:
        raise InvalidSpec([Problem("group", repr(group), str(error))]) from None


@router.get("", response_model=JobPage)
async def get_jobs(
    call: Call,
    state: State = "live",
    name: Name = None,
    owner: OwnerOf = None,
    group: Group = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Jobs that the caller may see, newest first."""
    listing = Listing(states_of(JOB_TABLE, state), name, owner, group, limit, cursor)
    return json_answer(await call.json(list_jobs, call.principal, listing))


@router.get("/{ref}", response_model=JobDetail)
async def get_job(call: Call, ref: str) -> Response:
    """One job: by id, by a unique prefix of it, or by name (a live one first)."""
    return json_answer(await call.json(read_job_detail, call.principal, ref))


@router.post("/{ref}/cancel", response_model=CancelView)
async def cancel_job(call: Call, ref: str) -> Response:
    """Cancel a job; one that has ended already stays as it is."""
    call.must_change()
    principal = call.principal
    job = await call.read(read_job, principal, ref)

    def cancel(work: Work, parts: Parts) -> tuple[Job, bool]:
        live = work.live.jobs.get(JobId(job.id))
        runs = live is not None and any(live.counts.get(state) for state in _HAS_PROCESSES)
        return parts[JobRequests].cancel(work, principal, JobId(job.id)), runs

    try:
        cancelled, runs = await call.change(cancel)
    except NotFound:
        job = await call.read(read_job, principal, job.id)
        message = f"job {job.name} ({job.id}) had ended already: it is {job.state.lower()}"
        return answer(CancelView(id=job.id, status=job.state, changed=False, message=message))
    left = grace_left([cancelled.spec.grace] if runs else [])
    message = f"job {job.name} ({job.id}) is cancelled{left}"
    return answer(CancelView(id=job.id, status=cancelled.status, changed=True, message=message))


class RetrySpec(Spec):
    """Which tasks of a job are run again: only those that ``failed``, or all that did not
    succeed."""

    failed: bool = False


_RETRY = {"application/json": {"schema": RetrySpec.model_json_schema()}}


@router.post(
    "/{ref}/retry",
    status_code=201,
    response_model=JobView,
    openapi_extra={"requestBody": {"required": True, "content": _RETRY}},
)
async def retry_job(
    request: Request,
    call: Call,
    ref: str,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> Response:
    """Hand in a job that runs tasks of an ended job again, each under its index."""
    call.must_change()
    api, principal = call.api, call.principal
    asked = await read_spec(request, RetrySpec)
    found, only = await call.read(read_to_retry, principal, ref, failed=asked.failed)
    principal = principal.within(found.owner.project)
    retried = Retried(found.id, found.name, found.spec, only)

    async def hand_in(ended: Ended) -> Job | str:
        def retry(work: Work, parts: Parts) -> Job:
            return parts[JobRequests].retry(work, principal, retried, ended)

        return await api.submissions.once(
            principal.owner, idempotency_key, call.still_allowed(retry)
        )

    return await _accepted(call, await knowing_ended(call, found.owner, found.spec, hand_in))


@router.get("/{ref}/tasks", response_model=TaskPage)
async def get_tasks(
    call: Call,
    ref: str,
    state: TaskState | None = None,
    failed: Annotated[bool, Query(description="those that failed by themselves")] = False,
    offset: Annotated[int, Query(ge=0, le=MAX_TASKS)] = 0,
    limit: Limit = 100,
) -> Response:
    """A job's tasks by index, with their latest attempts."""
    page = await call.json(list_tasks, call.principal, ref, state, offset, limit, failed=failed)
    return json_answer(page)


@router.get("/{ref}/failures", response_model=FailurePage)
async def get_failures(call: Call, ref: str) -> Response:
    """A job's failed tasks, grouped by how they failed."""
    return json_answer(await call.json(list_failures, call.principal, ref))


@router.get("/{ref}/tasks/{index}", response_model=TaskDetail)
async def get_task(call: Call, ref: str, index: int) -> Response:
    """One task, with its attempts."""
    return json_answer(await call.json(read_task, call.principal, ref, index))


@router.get("/{ref}/wait", response_model=JobView)
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
    loop = asyncio.get_running_loop()
    began = loop.time()
    mirror = api.plane.live
    live = mirror.jobs.get(JobId(ref))
    if live is not None and principal.may_see(live.owner):
        id_ = ref
    else:
        id_ = await call.read(resolve, JOB, principal, ref)
    of, changes = principal.owner, api.changes
    watched = changes.bell(of, ends=[id_]) if since is None else changes.bell(of, id_)
    with watched as bell:
        while True:
            bell.clear()
            job = api.plane.live.jobs.get(JobId(id_))
            if job is None:
                if live is not None and api.plane.live is mirror:
                    return job_view(live)  # as its end was committed
                return await call.read(read_job, principal, id_)
            live, mirror = job, api.plane.live
            changed = since is not None and _version(job) != since
            until = began + min(COALESCE_S if changed else timeout_s, timeout_s)
            if api.changes.closing.is_set() or loop.time() >= until:
                return job_view(job)
            try:
                async with asyncio.timeout_at(until):
                    await bell.wait()
            except TimeoutError:
                pass


def _version(job: Job) -> str:
    return job_version(
        job.status, all_counts(job.counts, job.tasks_total, job.next_task, ended=False)
    )


@router.get("/{ref}/why", response_model=WhyView)
async def why_job(call: Call, ref: str) -> Response:
    """Why a job is in its state: every reason that holds now."""
    api = call.api
    job = await call.read(read_job, call.principal, ref)
    live = api.plane.live
    if JobId(job.id) in live.jobs:
        now = api.clock.now()
        why = api.explain_job(
            live, api.plane.parts[ClusterState], JobId(job.id), now, call.principal
        )
        return answer(why)
    counts = ", ".join(f"{count} {state}" for state, count in job.counts.items())
    reasons = (job.reason,) if job.reason else ()
    verdict = f"ended {job.state}; its tasks: {counts}"
    return answer(WhyView(subject=job.id, status=job.state, verdict=verdict, reasons=reasons))
