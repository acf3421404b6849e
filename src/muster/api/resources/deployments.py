"""Deployments over HTTP."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import Query, Request
from msgspec.structs import replace
from pydantic import Field
from starlette.responses import Response

from muster.api.answers import answer
from muster.api.bodies import read_spec
from muster.api.context import Call, Caller
from muster.api.dependencies import knowing_ended, known_group
from muster.api.openapi import json_body, spec_body
from muster.api.resource import Resource, Submission
from muster.api.verbs import add_verb
from muster.control.deployment.book import Routes
from muster.control.deployment.dependents import why_not_begun
from muster.control.deployment.entity import (
    DEPLOYMENT,
    NOT_BEGUN,
    ROUTE,
    Deployment,
    DeploymentId,
    Route,
)
from muster.control.deployment.explanation import (
    explain_deployment,
    explain_ended_deployment,
    explain_ended_route,
    explain_route,
)
from muster.control.deployment.queries import (
    list_deployments,
    list_routes,
    read_deployment,
    read_deployment_detail,
    read_route,
)
from muster.control.deployment.requests import DeploymentRequests
from muster.control.deployment.views import accepted_deployment, live_deployment, top_of
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.session.admission import Ended
from muster.control.session.cluster.state import ClusterState
from muster.core.errors import Conflict, InvalidSpec, Problem
from muster.core.owner import Principal
from muster.core.specs.amounts import Spec, Whole
from muster.core.specs.deployment import DeploymentSpec
from muster.core.specs.serving import MAX_REPLICAS
from muster.core.states.deployment import DEPLOYMENT_TABLE, EndpointLifecycle
from muster.core.verbs.deployments import PAUSE_ROLLOUT, RESUME_ROLLOUT
from muster.core.views.base import ReasonView
from muster.core.views.deployments import (
    DeploymentDetail,
    DeploymentPage,
    DeploymentView,
    RoutePage,
    RouteView,
    TopView,
)
from muster.core.views.placement import WhyView
from muster.store.live import Live


def _submit(
    work: Work, parts: Parts, principal: Principal, spec: DeploymentSpec, ended: Ended
) -> Deployment:
    return parts[DeploymentRequests].apply(work, principal, spec, ended, new=True)


def _destroy(work: Work, parts: Parts, principal: Principal, id_: str) -> Deployment:
    return parts[DeploymentRequests].destroy(work, principal, id_)


def _explain(live: Live, parts: Parts, id_: str, now: float, asker: Principal) -> WhyView:
    cluster = parts[ClusterState]
    return explain_deployment(live, cluster, parts[Routes], id_, now, asker)


def _explain_route(live: Live, parts: Parts, name: str, now: float, asker: Principal) -> WhyView:
    return explain_route(live, parts[ClusterState], parts[Routes], name, now, asker)


def _as_seen(views: Sequence[DeploymentView], call: Caller) -> list[DeploymentView]:
    """The deployments of a listing; those that wait for other work have the first reason for it,
    which is in memory alone."""
    plane = call.api.plane
    live, cluster = plane.live.of(Deployment), plane.parts[ClusterState]
    seen = []
    for view in views:
        deployment = live.get(DeploymentId(view.id))
        if deployment is not None and deployment.status in NOT_BEGUN and view.reason is None:
            for why in why_not_begun(deployment, cluster)[:1]:
                view = replace(view, reason=ReasonView.of(why))
        seen.append(view)
    return seen


DEPLOYMENTS: Resource[Deployment, DeploymentView] = Resource(
    entity=DEPLOYMENT,
    path="/v1/deployments",
    view=DeploymentView,
    detail=DeploymentDetail,
    page=DeploymentPage,
    view_of=accepted_deployment,
    read=read_deployment,
    show=read_deployment_detail,
    list_of=list_deployments,
    as_seen=_as_seen,
    named=lambda view: f"deployment {view.name} ({view.id})",
    submission=Submission(DeploymentSpec, _submit),
    cancel=_destroy,
    graces_s=lambda deployment: [deployment.spec.drain + deployment.spec.grace],
    settled=lambda view: view.succeeded is not None,
    explain=_explain,
    explain_ended=explain_ended_deployment,
)


def _of_deployment(
    deployment: Annotated[str | None, Query(max_length=100)] = None,
) -> Mapping[str, Any]:
    return {"of": deployment}


ROUTES: Resource[Route, RouteView] = Resource(
    entity=ROUTE,
    path="/v1/routes",
    view=RouteView,
    page=RoutePage,
    read=read_route,
    show=read_route,
    list_of=list_routes,
    filters=_of_deployment,
    name_of=lambda view: f"{view.deployment}/{view.id}",
    explain=_explain_route,
    explain_ended=explain_ended_route,
)


@DEPLOYMENTS.router.put(
    "/{name}", response_model=DeploymentView, openapi_extra=spec_body(DeploymentSpec)
)
async def apply_deployment(request: Request, call: Call, name: str) -> Response:
    """Make a deployment, or change it: another command, other resources or the like make a new
    revision, which is rolled out; other changes replace nothing."""
    call.must_change()
    spec = await read_spec(request, DeploymentSpec)
    if spec.name != name:
        raise InvalidSpec([Problem("name", repr(spec.name), f"expected {name!r}, as in the path")])
    call.api.plane.check(spec)
    principal = call.principal.within(spec.project)

    async def applied(ended: Ended) -> DeploymentView:
        def apply(work: Work, parts: Parts) -> DeploymentView:
            known_group(work.live, spec.group)
            changed = parts[DeploymentRequests].apply(work, principal, spec, ended)
            return accepted_deployment(changed, work.live, parts)

        return await call.change(apply)

    return answer(await knowing_ended(call, principal.owner, spec, applied))


class ReplicasSpec(Spec):
    """Another number of replicas."""

    replicas: Annotated[Whole, Field(ge=0, le=MAX_REPLICAS)]


@DEPLOYMENTS.router.post(
    "/{ref}/scale", response_model=DeploymentView, openapi_extra=json_body(ReplicasSpec)
)
async def scale_deployment(request: Request, call: Call, ref: str) -> Response:
    """Wish another number of replicas; refused where the number follows load."""
    call.must_change()
    wished = (await read_spec(request, ReplicasSpec)).replicas
    return await _change(
        call, ref, lambda requests, work, by, id_: requests.scale(work, by, id_, wished)
    )


class UndoSpec(Spec):
    """The revision to go back to; null is the one that serves, or the one before it."""

    revision: Annotated[Whole, Field(ge=1)] | None = None


@DEPLOYMENTS.router.post(
    "/{ref}/undo", response_model=DeploymentView, openapi_extra=json_body(UndoSpec)
)
async def undo_rollout(request: Request, call: Call, ref: str) -> Response:
    """Go back to a former revision; what the update under way has made goes."""
    call.must_change()
    number = (await read_spec(request, UndoSpec)).revision
    return await _change(
        call, ref, lambda requests, work, by, id_: requests.undo(work, by, id_, number)
    )


@DEPLOYMENTS.router.get("/{ref}/top", response_model=TopView)
async def top_deployment(call: Call, ref: str) -> Response:
    """The requests of a deployment and of each of its replicas, as the proxies saw them."""
    found = await call.read(read_deployment_detail, call.principal, ref)
    plane = call.api.plane
    return answer(top_of(found, plane.live, plane.parts, call.api.clock.now()))


async def _change(
    call: Caller, ref: str, act: Callable[[DeploymentRequests, Work, Principal, str], Deployment]
) -> Response:
    call.must_change()
    found = await call.read(read_deployment, call.principal, ref)
    if found.status not in DEPLOYMENT_TABLE.live - {EndpointLifecycle.DESTROYING}:
        said = DEPLOYMENT_TABLE.words[found.status]
        raise Conflict(f"deployment {found.name} {said}, and is not changed any more")

    def change(work: Work, parts: Parts) -> DeploymentView:
        changed = act(parts[DeploymentRequests], work, call.principal, found.id)
        return live_deployment(changed, work.live, parts)

    return answer(await call.change(change))


add_verb(DEPLOYMENTS, PAUSE_ROLLOUT, _change, DeploymentRequests.pause)
add_verb(DEPLOYMENTS, RESUME_ROLLOUT, _change, DeploymentRequests.resume)
