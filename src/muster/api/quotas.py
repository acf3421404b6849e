"""Quotas over HTTP, with their use."""

from collections.abc import Iterator

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
from muster.core.specs import Level, QuotaLimits, QuotaSpec
from muster.core.specs.quota import MAX_PRIORITY_OF_USER, UNLIMITED
from muster.core.views.cluster import LimitView, QuotaPage, QuotaView
from muster.scheduling.accounting.holdings import Holdings
from muster.scheduling.accounting.limits import Limit, Models
from muster.scheduling.accounting.usage import Quotas, ScopeUsage, scopes, stored_limits
from muster.store.accounts import Accounts

router = APIRouter(prefix="/v1/quotas", tags=["cluster"])

_ANYBODY = (Level.USER, "*/*/*")
_DEFAULT = QuotaSpec(level=_ANYBODY[0], name=_ANYBODY[1])
"""The quota of users of whom none is set: its limits are the defaults."""


@router.get("", response_model=QuotaPage)
async def get_quotas(call: Call) -> Response:
    """Quotas with their use: all for an admin, else the quotas that bind the caller. What the quota
    of one owner leaves out is told as of the quotas of ``*`` to which it falls back. The limits
    that a user has without a quota are told as one of ``*/*/*``."""
    plane = call.api.plane
    quotas = plane.parts[ClusterState].accounting.quotas
    if call.principal.is_admin:
        known = plane.live.quotas
        specs = [*known.values(), *(() if _ANYBODY in known else (_DEFAULT,))]
        views = [_view(_in_force(spec, quotas), plane, _own_name(spec)) for spec in specs]
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


def _in_force(spec: QuotaSpec, quotas: Quotas) -> QuotaSpec:
    """The limits of the owner that a quota names, with those to which it falls back; those that a
    quota of ``*`` says itself."""
    own = _own_name(spec)
    return spec if own is None else quotas.of((spec.level, own)) or spec


def _own_name(spec: QuotaSpec) -> str | None:
    """The owner whose limits these are; None if they are the limits of several."""
    return None if "*" in spec.name.split("/") else spec.name


def _is_somebodys(spec: QuotaSpec, accounts: Accounts) -> bool:
    """Whether there is a domain, project or user whom the quota names, or it names several."""
    if _own_name(spec) is None:
        return True
    domain, *below = spec.name.split("/")
    if spec.level is Level.DOMAIN:
        return domain in accounts.domains
    if spec.level is Level.PROJECT:
        return (domain, below[0]) in accounts.projects
    user = accounts.users.get((domain, below[1]))
    return user is not None and below[0] in user.projects


def _view(spec: QuotaSpec, plane: ControlPlane, of: str | None) -> QuotaView:
    """A quota, with the use by ``of``."""
    usage = plane.parts[ClusterState].accounting.usage
    held = usage.of((spec.level, of)) if of is not None else None
    priority = spec.max_priority
    if priority is None and (of is not None or (spec.level, spec.name) == _ANYBODY):
        priority = MAX_PRIORITY_OF_USER if spec.level is Level.USER else None
    return QuotaView(
        level=spec.level,
        name=spec.name,
        of=of,
        limits=tuple(_limits(spec, held, usage.models)),
        sessions=_counted("sessions", held.sessions if held else None, spec.sessions),
        pending_sessions=_counted(
            "pending_sessions", held.pending if held else None, spec.pending_sessions
        ),
        max_priority=_counted("max_priority", None, priority),
        unlimited=tuple(_unlimited(spec)),
        largest=_largest(spec.largest),
        weight=spec.weight or 1.0,
        is_nobodys=not _is_somebodys(spec, plane.live.accounts),
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


def _limits(spec: QuotaSpec, held: ScopeUsage | None, models: Models) -> Iterator[LimitView]:
    for group, limits in ((None, spec.limits), *spec.groups.items()):
        for its in (
            *(Limit(name, limit, 0, group) for name, limit in limits.amounts.items()),
            *(Limit("gpu", limit, 0, group, model) for model, limit in limits.models.items()),
        ):
            used = None if held is None else its.used(held, models)
            yield LimitView(
                resource=its.resource, used=used, limit=its.limit, group=group, model=its.model
            )


def _largest(limits: QuotaLimits) -> dict[str, int]:
    of_models = {f"gpu ({model})": limit for model, limit in limits.models.items()}
    return {**limits.amounts, **of_models}


def _unlimited(spec: QuotaSpec) -> Iterator[str]:
    """The keys of a quota that say that there is no limit."""
    parts = {"limits": spec.limits, "largest": spec.largest}
    parts |= {f"groups.{name}": limits for name, limits in spec.groups.items()}
    for key, limits in parts.items():
        of_models = {f"gpu_models.{name}": limit for name, limit in limits.gpu_models.items()}
        said = {**limits.said, **of_models}
        yield from (f"{key}.{name}" for name, limit in said.items() if limit == UNLIMITED)
    for key in ("sessions", "pending_sessions", "open_work", "open_specs", "ended_specs"):
        if getattr(spec, key) == UNLIMITED:
            yield key


def _counted(resource: str, used: int | None, limit: int | None) -> LimitView | None:
    if limit is None or limit == UNLIMITED:
        return None
    return LimitView(resource=resource, used=used, limit=limit)
