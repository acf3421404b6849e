"""Published services over HTTP, for Muster's own proxy, Prometheus and Traefik; and the load that
proxies tell."""

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from msgspec.structs import replace
from starlette.responses import Response

from muster.api.answers import answer, json_answer
from muster.api.bodies import read_body
from muster.api.context import Call, Caller
from muster.api.listing import Cursor, Group, Limit
from muster.control.deployment.load_reports import take_load
from muster.control.deployment.loads import Loads
from muster.control.deployment.queries import list_deployments
from muster.control.deployment.traffic import TRAFFIC, Traffic
from muster.control.deployment.views import deployment_load
from muster.core.errors import InvalidSpec, Problem
from muster.core.owner import Owner, Role
from muster.core.serving.traffic import Identity, LoadReport, TrafficService, TrafficView
from muster.core.states.deployment import DEPLOYMENT_TABLE
from muster.core.views.deployments import DeploymentLoadPage, DeploymentLoadView
from muster.store.queries.listing import Listing

router = APIRouter(prefix="/v1/traffic", tags=["traffic"])
LONGEST_WAIT_S = 60.0
DEFAULT_WAIT_S = 25.0
MAX_REPORT_BYTES = 4 * 1024 * 1024
AT_A_TIME = 50
"""Deployments whose loads are summed up before others of the controller's work may go on: a
thousand of them with ten replicas each take 55 ms."""
_TO_SERVE = "serve the requests of all deployments"


@router.get("", response_model=TrafficView)
async def get_traffic(
    call: Call,
    since: Annotated[int | None, Query(ge=0, le=2**62)] = None,
    wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT_S)] = DEFAULT_WAIT_S,
) -> Response:
    """The services that the caller may see, with the replicas to which requests may go; for admins,
    whose proxies send these, with the secrets that they carry. With ``since`` the answer comes once
    there is another version than that, after ``wait`` seconds at the latest."""
    changes = call.api.changes
    until_s = asyncio.get_running_loop().time() + wait
    with changes.bell(call.principal.owner, TRAFFIC) as bell:
        while True:
            bell.clear()
            view = _seen(call)
            if since is None or view.version != since or not await changes.wait(bell, until_s):
                return answer(view)


@router.get("/top", response_model=DeploymentLoadPage)
async def get_loads(
    call: Call, group: Group = None, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """The live deployments that the caller may see, newest first, with the load of each as the
    proxies saw it."""
    listing = Listing(frozenset(DEPLOYMENT_TABLE.live), None, None, group, limit, cursor)
    page = await call.read(list_deployments, call.principal, listing)
    live, parts, now = call.api.plane.live, call.api.plane.parts, call.api.clock.now()
    items = []
    for each in page.items:
        load = deployment_load(each, live, parts, now)
        items.append(DeploymentLoadView(deployment=each, load=load))
        if len(items) % AT_A_TIME == 0:
            await asyncio.sleep(0)
    return answer(DeploymentLoadPage(items=tuple(items), next=page.next))


@router.get("/prometheus", response_model=list[dict[str, Any]])
async def get_prometheus(call: Call) -> Response:
    """The replicas that get requests, as Prometheus' HTTP service discovery reads them: of all
    deployments for admins and for tokens of the role `discovery`, else of the caller's own."""
    return json_answer(msgspec.json.encode(_prometheus(_seen(call).services)))


@router.get("/traefik", response_model=dict[str, Any])
async def get_traefik(call: Call) -> Response:
    """The public services that have a host, as Traefik's HTTP provider reads them: all for admins
    and for tokens of the role `discovery`, else the caller's own. Services that are not public are
    left out, because Traefik knows nothing of Muster's tokens."""
    call.api.plane.parts[Loads].asked(call.api.clock.now())
    services = [each for each in _seen(call).services if each.public and each.host]
    return json_answer(msgspec.json.encode(_traefik(services)))


@router.post("/load")
async def tell_load(request: Request, call: Call) -> Response:
    """Take the load that a proxy saw since its last report; for admins."""
    call.must_be_admin(_TO_SERVE)
    body = await read_body(request, MAX_REPORT_BYTES)
    try:
        report = msgspec.json.decode(body, type=LoadReport)
    except msgspec.MsgspecError as error:
        raise InvalidSpec([Problem("", "the report", str(error)[:200])]) from None
    await call.report(lambda work, parts: take_load(work, parts, report))
    return Response(status_code=202)


class TokenGiven(msgspec.Struct):
    """A token that somebody sent to a proxy."""

    token: Annotated[str, msgspec.Meta(max_length=512)]


@router.post("/identify")
async def identify(request: Request, call: Call) -> Response:
    """Tell whose a token is that a proxy was given; for admins. `null` where it is nobody's."""
    call.must_be_admin(_TO_SERVE)
    body = await read_body(request, 4096)
    try:
        given = msgspec.json.decode(body, type=TokenGiven)
    except msgspec.MsgspecError as error:
        raise InvalidSpec([Problem("", "the token", str(error)[:100])]) from None
    found = call.api.access.principal(given.token)
    if found is None or found.role is Role.DISCOVERY:  # it opens no deployment
        return json_answer(b"null")
    owner = found.owner
    projects = tuple(dict.fromkeys((owner.project, *found.projects)))
    return answer(
        Identity(domain=owner.domain, user=owner.user, projects=projects, role=found.role)
    )


def _seen(call: Caller) -> TrafficView:
    """The published services as the caller may see them; their secrets are for admins alone."""
    view, principal = call.api.plane.parts[Traffic].view(), call.principal
    if principal.role is Role.ADMIN:
        return view
    seen = [
        replace(each, secret="")
        for each in view.services
        if principal.role is Role.DISCOVERY
        or principal.may_see(Owner(each.domain, each.project, each.user))
    ]
    return TrafficView(version=view.version, services=tuple(seen))


def _prometheus(services: Iterable[TrafficService]) -> list[dict[str, Any]]:
    return [
        {
            "targets": [target.address],
            "labels": {
                "__meta_muster_deployment": service.name,
                "__meta_muster_route": target.route,
                "__meta_muster_revision": str(target.revision),
                "__meta_muster_domain": service.domain,
                "__meta_muster_project": service.project,
                "__meta_muster_user": service.user,
            },
        }
        for service in services
        for target in service.targets
        if target.weight
    ]


def _traefik(services: Iterable[TrafficService]) -> dict[str, Any]:
    routers: dict[str, Any] = {}
    backends: dict[str, Any] = {}
    for each in services:
        targets = [target for target in each.targets if target.weight]
        if not targets:
            continue
        routers[each.id] = {"rule": f"Host(`{each.host}`)", "service": each.id}
        backends[each.id] = {
            "loadBalancer": {
                "servers": [
                    {"url": f"http://{target.address}", "weight": target.weight}
                    for target in targets
                ]
            }
        }
    return {"http": {"routers": routers, "services": backends}} if routers else {}
