"""Sessions over HTTP."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from muster.api.answers import answer, json_answer
from muster.api.bodies import read_spec
from muster.api.context import Call
from muster.api.jobs import known_group
from muster.api.listing import Cursor, Group, Limit, Name, OwnerOf, State, states_of
from muster.api.live_views import grace_left, session_view
from muster.api.openapi import spec_body
from muster.api.targets import knowing_ended
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.session.admission import Ended
from muster.control.session.cluster import ClusterState
from muster.control.session.requests import SessionRequests
from muster.core.errors import NotFound
from muster.core.ids import SessionId
from muster.core.owner import Principal
from muster.core.specs import SessionSpec
from muster.core.states import SESSION_TABLE
from muster.core.views.placement import WhyView
from muster.core.views.work import CancelView, SessionDetail, SessionPage, SessionView
from muster.store.queries.listing import Listing
from muster.store.queries.sessions import list_sessions, read_session, read_session_detail
from muster.store.records import Session

router = APIRouter(prefix="/v1/sessions", tags=["sessions"])


@router.post("", status_code=201, response_model=SessionView, openapi_extra=spec_body(SessionSpec))
async def submit_session(
    request: Request,
    call: Call,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> Response:
    """Hand in a session. With the key of an earlier submission the answer is that session, with
    status 200."""
    call.must_change()
    spec = await read_spec(request, SessionSpec)
    call.api.plane.check(spec)
    principal = call.principal.within(spec.project)

    async def hand_in(ended: Ended) -> Session | str:
        submit = partial(_submit, principal=principal, spec=spec, ended=ended)
        return await call.api.submissions.once(
            principal.owner, idempotency_key, call.still_allowed(submit)
        )

    session = await knowing_ended(call, principal.owner, spec, hand_in)
    if isinstance(session, Session):
        return answer(session_view(session), 201)
    return json_answer(await call.json(read_session, call.principal, session))


def _submit(
    work: Work, parts: Parts, *, principal: Principal, spec: SessionSpec, ended: Ended
) -> Session:
    known_group(work.live, spec.group)
    return parts[SessionRequests].submit(work, principal, spec, ended)


@router.get("", response_model=SessionPage)
async def get_sessions(
    call: Call,
    state: State = "live",
    of_jobs: Annotated[bool, Query(description="those that belong to jobs too")] = False,
    name: Name = None,
    owner: OwnerOf = None,
    group: Group = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Sessions that the caller may see, newest first."""
    listing = Listing(states_of(SESSION_TABLE, state), name, owner, group, limit, cursor)
    page = await call.json(list_sessions, call.principal, listing, of_jobs=of_jobs)
    return json_answer(page)


@router.get("/{ref}", response_model=SessionDetail)
async def get_session(call: Call, ref: str) -> Response:
    """One session, with its kernels: by id, by a unique prefix of it, or by name."""
    return json_answer(await call.json(read_session_detail, call.principal, ref))


@router.post("/{ref}/cancel", response_model=CancelView)
async def cancel_session(call: Call, ref: str) -> Response:
    """Cancel a session without a job; one that has ended already stays as it is."""
    call.must_change()
    principal = call.principal
    found = await call.read(read_session, principal, ref)

    def cancel(work: Work, parts: Parts) -> tuple[Session, list[float]]:
        live = work.live.sessions.get(SessionId(found.id))
        running = [k for k in (live.kernels if live else ()) if k.started_at and not k.ended_at]
        graces_s = [kernel.process.grace for kernel in running]
        return parts[SessionRequests].cancel(work, principal, SessionId(found.id)), graces_s

    try:
        cancelled, graces_s = await call.change(cancel)
    except NotFound:
        found = await call.read(read_session, principal, found.id)
        message = f"session {found.id} had ended already: it is {found.status.lower()}"
        return answer(CancelView(id=found.id, status=found.status, changed=False, message=message))
    message = f"session {found.id} is cancelled{grace_left(graces_s)}"
    return answer(CancelView(id=found.id, status=cancelled.status, changed=True, message=message))


@router.get("/{ref}/why", response_model=WhyView)
async def why_session(call: Call, ref: str) -> Response:
    """Why a session is in its state: every reason that holds now."""
    api = call.api
    found = await call.read(read_session, call.principal, ref)
    live = api.plane.live
    if SessionId(found.id) in live.sessions:
        id_, now = SessionId(found.id), api.clock.now()
        why = api.explain_session(live, api.plane.parts[ClusterState], id_, now, call.principal)
        return answer(why)
    reasons = (found.reason,) if found.reason else ()
    verdict = f"ended {found.status}"
    return answer(WhyView(subject=found.id, status=found.status, verdict=verdict, reasons=reasons))
