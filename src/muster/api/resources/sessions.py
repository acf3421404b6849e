"""Sessions over HTTP."""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

from fastapi import Depends, Query
from msgspec.structs import replace
from sqlalchemy import Connection

from muster.api.context import Caller
from muster.api.live_views import accepted_session
from muster.api.resource import Resource, Submission
from muster.api.resources.agents import on_agent
from muster.control.deployment.queries import is_replica
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.health.stragglers import StragglerWatch, with_stragglers
from muster.control.plan import plan_session
from muster.control.session.admission import Ended
from muster.control.session.cluster.state import ClusterState
from muster.control.session.explaining.explanation import explain_ended_session, explain_session
from muster.control.session.explaining.machines import silence_by_work
from muster.control.session.requests import SessionRequests
from muster.core.ids import SessionId
from muster.core.owner import Principal
from muster.core.specs import SessionSpec
from muster.core.views.placement import PlanView, WhyView
from muster.core.views.work import SessionDetail, SessionPage, SessionView
from muster.store.entities import SESSION
from muster.store.live import Live
from muster.store.queries.listing import Listing
from muster.store.queries.sessions import list_sessions, read_session, read_session_detail
from muster.store.records import Session


def _filters(
    on: Annotated[Mapping[str, Any], Depends(on_agent)],
    of_jobs: Annotated[bool, Query(description="those that belong to jobs too")] = False,
    of_deployments: Annotated[
        bool, Query(description="those that are replicas of deployments too")
    ] = False,
) -> Mapping[str, Any]:
    return {**on, "of_jobs": of_jobs, "of_deployments": of_deployments}


def _as_seen(views: Sequence[SessionView], call: Caller) -> list[SessionView]:
    """Sessions with the GPUs that those ask for which have not ended, and with machines of theirs
    that are not heard."""
    plane = call.api.plane
    live, silence = plane.live.sessions, silence_by_work(plane.live, call.api.clock.now())
    return [
        replace(
            view,
            gpu_milli=sum(kernel.resources.gpu_milli for kernel in live[id_].kernels),
            silence=silence.get(view.id),
        )
        if (id_ := SessionId(view.id)) in live
        else view
        for view in views
    ]


def _list(
    connection: Connection,
    principal: Principal,
    listing: Listing,
    *,
    of_jobs: bool,
    of_deployments: bool,
    ids: Collection[str] | None = None,
) -> SessionPage:
    but = None if of_deployments else is_replica()
    return list_sessions(connection, principal, listing, of_jobs=of_jobs, but=but, ids=ids)


def _submit(
    work: Work, parts: Parts, principal: Principal, spec: SessionSpec, ended: Ended
) -> Session:
    return parts[SessionRequests].submit(work, principal, spec, ended)


def _plan(
    live: Live, parts: Parts, principal: Principal, spec: SessionSpec, now: float, ended: Ended
) -> PlanView:
    return plan_session(live, parts[ClusterState], principal, spec, now, ended)


def _cancel(work: Work, parts: Parts, principal: Principal, id_: str) -> Session:
    return parts[SessionRequests].cancel(work, principal, SessionId(id_))


def _kill(work: Work, parts: Parts, principal: Principal, id_: str) -> Session:
    return parts[SessionRequests].cancel(work, principal, SessionId(id_), force=True)


def _reprioritise(work: Work, parts: Parts, principal: Principal, id_: str, priority: int) -> int:
    return parts[SessionRequests].reprioritise(work, principal, SessionId(id_), priority)


def _graces_s(session: Session) -> Collection[float]:
    running = (each for each in session.kernels if each.started_at and not each.ended_at)
    return [kernel.process.grace for kernel in running]


def _explain(live: Live, parts: Parts, id_: str, now: float, asker: Principal) -> WhyView:
    found = explain_session(live, parts[ClusterState], SessionId(id_), now, asker)
    return with_stragglers(found, parts[StragglerWatch].of_session(SessionId(id_)))


SESSIONS: Resource[Session, SessionView] = Resource(
    entity=SESSION,
    path="/v1/sessions",
    view=SessionView,
    detail=SessionDetail,
    page=SessionPage,
    view_of=accepted_session,
    read=read_session,
    show=read_session_detail,
    list_of=_list,
    as_seen=_as_seen,
    filters=_filters,
    named=lambda session: f"session {session.id}",
    submission=Submission(SessionSpec, _submit, _plan),
    cancel=_cancel,
    kill=_kill,
    graces_s=_graces_s,
    reprioritise=_reprioritise,
    explain=_explain,
    explain_ended=explain_ended_session,
)
