"""The cluster over HTTP: its scaling groups, itself."""

from collections import Counter

from fastapi import APIRouter, Request
from msgspec.structs import replace
from starlette.responses import Response

from muster.api.answers import answer
from muster.api.bodies import read_spec
from muster.api.context import Api, Call
from muster.api.live_views import group_view
from muster.api.openapi import spec_body
from muster.control.deployment.loads import Loads
from muster.control.deployment.publishing.performer import TrafficPublisher
from muster.control.group.requests import GroupRequests
from muster.control.session.cluster.state import ClusterState
from muster.control.session.cluster.user_uids import UserUids
from muster.core.errors import InvalidSpec, Problem
from muster.core.owner import Principal
from muster.core.specs import ScalingGroup
from muster.core.uids import uids_said
from muster.core.views.cluster import ClusterView, GroupPage, GroupView, HealthView
from muster.store.queries.cluster import read_cluster_id
from muster.version import __version__

router = APIRouter(tags=["cluster"])

_DEGRADED = "nothing can be stored; `muster doctor` tells an admin why"
_FAILED_BESIDE = "a part of the controller failed; `muster doctor` tells an admin which"


@router.get("/health", response_model=HealthView)
async def get_health(request: Request) -> Response:
    """The controller's health; no token is needed. A controller that can store nothing, for
    instance because its disk is full, is "degraded": it answers, keeps agents and their kernels
    alive, and refuses changes with 503. So is one of which a part beside the control plane rests
    because it failed. Only admins are told why, by the view of the cluster."""
    api: Api = request.app.state.api
    reason = None
    if api.plane.trouble is not None:
        reason = _DEGRADED
    elif api.trouble_beside() is not None:
        reason = _FAILED_BESIDE
    status = "ok" if reason is None else "degraded"
    proxies = api.plane.parts[Loads].urls(api.clock.now())
    return answer(HealthView(status=status, version=__version__, reason=reason, proxies=proxies))


@router.get("/v1/cluster", response_model=ClusterView)
async def get_cluster(call: Call) -> Response:
    """The cluster as a whole."""
    live, cluster = call.api.plane.live, call.api.plane.parts[ClusterState]
    state, uids = call.api.clock_state, call.api.plane.parts[UserUids]
    view = ClusterView(
        id=await call.read(read_cluster_id),
        version=__version__,
        now=call.api.clock.now(),
        clock_leap_s=round(state.leap_s(), 3),
        clock_suspended_s=round(state.suspended_s(), 3),
        clock_confirmed=state.is_confirmed,
        uids=uids_said(uids.range),
        uids_left=uids.left,
        agents=dict(Counter(agent.status for agent in live.agents.values())),
        jobs=len(live.jobs),
        sessions=len(live.sessions),
        waiting=sum(group.waiting for group in cluster.groups.values()),
        kernels=len(live.ledger),
        unauthenticated=call.api.access.refused,
        trouble=call.api.trouble if call.principal.is_admin else None,
        balancers=_balancers(call.api) if call.principal.is_admin else {},
    )
    return answer(view)


def _balancers(api: Api) -> dict[str, str]:
    return api.plane.parts[TrafficPublisher].complaints()


@router.get("/v1/groups", response_model=GroupPage)
async def get_groups(call: Call) -> Response:
    """Scaling groups by name, with their policies."""
    live, parts = call.api.plane.live, call.api.plane.parts
    views = (group_view(name, live, parts) for name in sorted(live.groups))
    return answer(GroupPage(items=tuple(_as_seen(view, call.principal) for view in views)))


def _as_seen(view: GroupView, principal: Principal) -> GroupView:
    """A group without the names of others' projects."""
    if principal.is_admin or not view.spec.get("projects"):
        return view
    own = {f"{principal.owner.domain}/{name}" for name in principal.owned_projects()}
    seen = [project for project in view.spec["projects"] if project in own]
    return replace(view, spec={**view.spec, "projects": seen})


@router.put("/v1/groups/{name}", response_model=GroupView, openapi_extra=spec_body(ScalingGroup))
async def put_group(request: Request, call: Call, name: str) -> Response:
    """Make a scaling group, or give one another policy; for admins."""
    call.must_be_admin("change scaling groups")
    spec = await read_spec(request, ScalingGroup)
    if spec.name != name:
        raise InvalidSpec([Problem("name", repr(spec.name), f"expected {name!r}, as in the path")])
    plane = call.api.plane
    await call.change(lambda work, parts: parts[GroupRequests].put_group(work, spec))
    return answer(group_view(name, plane.live, plane.parts))


@router.delete("/v1/groups/{name}", status_code=204)
async def delete_group(call: Call, name: str) -> Response:
    """Remove a scaling group that has neither agents nor pools nor work; for admins. Invitations of
    agents to it are revoked."""
    call.must_be_admin("remove scaling groups")
    await call.change(lambda work, parts: parts[GroupRequests].remove_group(work, name))
    return Response(status_code=204)
