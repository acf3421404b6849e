"""Quotas over HTTP, with their use."""

from collections.abc import Iterator, Mapping

from fastapi import APIRouter, Request
from starlette.responses import Response

from muster.api.answers import answer
from muster.api.bodies import read_spec
from muster.api.context import Call
from muster.api.openapi import spec_body
from muster.control.group.requests import GroupRequests
from muster.control.plane import ControlPlane
from muster.control.session.cluster.state import ClusterState
from muster.core.errors import InvalidSpec, Problem
from muster.core.owner import Owner
from muster.core.specs import Level, QuotaSpec
from muster.core.views.cluster import LimitView, QuotaPage, QuotaView
from muster.scheduling.accounting.holdings import Holdings
from muster.scheduling.accounting.usage import ScopeUsage, scopes, stored_limits

router = APIRouter(prefix="/v1/quotas", tags=["cluster"])

_ANYBODY = (Level.USER, "*/*/*")
_DEFAULT = QuotaSpec(level=_ANYBODY[0], name=_ANYBODY[1])
"""The quota of users of whom none is set: its limits are the defaults."""


@router.get("", response_model=QuotaPage)
async def get_quotas(call: Call) -> Response:
    """Quotas with their use: all for an admin, else the quotas that bind the caller. The limits
    that a user has without a quota are told as one of ``*/*/*``."""
    plane = call.api.plane
    quotas = plane.parts[ClusterState].accounting.quotas
    if call.principal.is_admin:
        known = plane.live.quotas
        specs = [*known.values(), *(() if _ANYBODY in known else (_DEFAULT,))]
        views = [_view(spec, plane, _own_name(spec)) for spec in specs]
    else:
        bound = [(scope, quotas.of(scope)) for scope in scopes(call.principal.owner)]
        views = [
            _view(spec or _DEFAULT, plane, name)
            for (level, name), spec in bound
            if spec is not None or level is Level.USER
        ]
    views.sort(key=lambda view: (list(Level).index(Level(view.level)), view.name))
    return answer(QuotaPage(items=tuple(views)))


@router.put("/{level}/{name:path}", response_model=QuotaView, openapi_extra=spec_body(QuotaSpec))
async def put_quota(request: Request, call: Call, level: Level, name: str) -> Response:
    """Set the limits of a domain, a project or a user; for admins. Former limits are replaced."""
    call.must_be_admin("change quotas")
    spec = await read_spec(request, QuotaSpec)
    problems = [
        Problem(field, repr(said), f"expected {in_path!r}, as in the path")
        for field, said, in_path in (
            ("level", str(spec.level), str(level)),
            ("name", spec.name, name),
        )
        if said != in_path
    ]
    if problems:
        raise InvalidSpec(problems)
    plane = call.api.plane
    await call.change(lambda work, parts: parts[GroupRequests].put_quota(work, spec))
    return answer(_view(spec, plane, _own_name(spec)))


@router.delete("/{level}/{name:path}", status_code=204)
async def delete_quota(call: Call, level: Level, name: str) -> Response:
    """Remove the limits of a domain, a project or a user; for admins."""
    call.must_be_admin("change quotas")
    await call.change(lambda work, parts: parts[GroupRequests].remove_quota(work, level, name))
    return Response(status_code=204)


def _own_name(spec: QuotaSpec) -> str | None:
    """The owner whose limits these are; None if they are the limits of several."""
    return None if "*" in spec.name.split("/") else spec.name


def _view(spec: QuotaSpec, plane: ControlPlane, of: str | None) -> QuotaView:
    """A quota, with the use by ``of``."""
    accounting = plane.parts[ClusterState].accounting
    held = accounting.usage.of((spec.level, of)) if of is not None else None
    return QuotaView(
        level=spec.level,
        name=spec.name,
        of=of,
        limits=tuple(_limits(spec.limits.amounts, held)),
        sessions=_counted("sessions", held.sessions if held else None, spec.sessions),
        pending_sessions=_counted(
            "pending_sessions", held.pending if held else None, spec.pending_sessions
        ),
        largest=dict(spec.largest.amounts),
        weight=spec.weight,
        **_stored(spec, plane.live.holdings, of),
    )


def _stored(spec: QuotaSpec, holdings: Holdings, of: str | None) -> dict[str, LimitView | None]:
    """The limits on what may be in the database, with the use by ``of``."""
    limits = stored_limits(spec.level, spec)
    held = holdings.of((spec.level, of)) if of is not None else None
    ended_bytes = None
    if of is not None and spec.level is Level.USER:
        ended_bytes = holdings.ended_bytes(Owner(*of.split("/")))
    return {
        "open_work": _counted("open_work", held.work if held else None, limits.open_work),
        "open_specs": _counted(
            "open_specs", held.spec_bytes if held else None, limits.open_specs_bytes
        ),
        "ended_specs": _counted("ended_specs", ended_bytes, limits.ended_specs_bytes),
    }


def _limits(limits: Mapping[str, int], held: ScopeUsage | None) -> Iterator[LimitView]:
    for resource, limit in limits.items():
        used = held.amounts.get(resource, 0) if held is not None else None
        yield LimitView(resource=resource, used=used, limit=limit)


def _counted(resource: str, used: int | None, limit: int | None) -> LimitView | None:
    return None if limit is None else LimitView(resource=resource, used=used, limit=limit)
