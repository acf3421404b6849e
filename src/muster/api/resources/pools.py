"""Pools over HTTP."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

from fastapi import Request
from msgspec.structs import replace
from pydantic import Field
from starlette.responses import Response

from muster.api.answers import answer
from muster.api.bodies import read_spec
from muster.api.context import Call, Caller
from muster.api.openapi import json_body, spec_body
from muster.api.resource import Resource
from muster.api.verbs import add_verb
from muster.control.agent.explanation import held_up_by
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.pool.autoscaler import RouteDemand
from muster.control.pool.explanation import explain_ended_pool, explain_pool
from muster.control.pool.fleet import Fleet
from muster.control.pool.queries import list_pools, read_pool
from muster.control.pool.records import POOL, Pool, Slice
from muster.control.pool.requests import PoolRequests
from muster.control.pool.states import POOL_TABLE
from muster.control.pool.views import live_pool, slices_by_pool, stored_pool
from muster.control.session.cluster.state import ClusterState
from muster.core.errors import InvalidSpec, NotFound, Problem
from muster.core.owner import Principal
from muster.core.specs import PoolSpec
from muster.core.specs.amounts import Spec, Whole
from muster.core.specs.pool import MAX_SLICES
from muster.core.verbs.pools import PAUSE_POOL, RESUME_POOL
from muster.core.views.placement import WhyView
from muster.core.views.pools import PoolPage, PoolView
from muster.store.live import Live
from muster.store.queries.cluster import read_cluster_id

_CHANGE = "change pools"


def pools_seen(views: Sequence[PoolView], call: Caller) -> list[PoolView]:
    """Pools as they are now."""
    plane = call.api.plane
    if plane.is_broken:
        return [_without_secrets(view, call) for view in views]
    of_pool = slices_by_pool(plane.live.of(Slice).values())
    pools = plane.live.of(Pool)
    return [
        pool_seen(pools[view.id], of_pool.get(view.name, []), call)
        if view.id in pools
        else _without_secrets(view, call)
        for view in views
    ]


def pool_seen(pool: Pool, slices: Sequence[Slice], call: Caller) -> PoolView:
    """A pool that exists, with its slices."""
    parts, now = call.api.plane.parts, call.api.clock.now()
    view = live_pool(pool, slices, parts[Fleet], parts[RouteDemand], now)
    return _without_secrets(view, call)


def _without_secrets(view: PoolView, call: Caller) -> PoolView:
    """The pool as the caller may see it: settings are for admins."""
    if call.principal.is_admin:
        return view
    return replace(view, spec={key: said for key, said in view.spec.items() if key != "settings"})


def _explain(live: Live, parts: Parts, id_: str, now: float, asker: Principal) -> WhyView:
    pool, fleet = live.of(Pool)[id_], parts[Fleet]
    cluster = parts[ClusterState]
    holders, holds = partial(held_up_by, live, cluster.guard, now), cluster.machine_holds
    return explain_pool(pool, fleet.slices(pool.name), fleet, holders, holds, now)


POOLS: Resource[Pool, PoolView] = Resource(
    entity=POOL,
    path="/v1/pools",
    view=PoolView,
    page=PoolPage,
    as_seen=pools_seen,
    read=read_pool,
    list_of=list_pools,
    explain=_explain,
    explain_ended=explain_ended_pool,
)


@POOLS.router.put("/{name}", response_model=PoolView, openapi_extra=spec_body(PoolSpec))
async def put_pool(request: Request, call: Call, name: str, check: bool = True) -> Response:
    """Make a pool, or change it; for admins. Its provider is asked first whether it could make such
    machines, unless ``check`` is false. Slices that were made with another shape, provider's
    settings or size stay as they are, and are outdated."""
    call.must_be_admin(_CHANGE)
    spec = await read_spec(request, PoolSpec)
    if spec.name != name:
        raise InvalidSpec([Problem("name", repr(spec.name), f"expected {name!r}, as in the path")])
    call.api.plane.live.group(spec.group)
    await call.api.provider_checks.check(spec, await call.read(read_cluster_id), asks=check)
    principal = call.principal
    pool = await call.change(lambda work, parts: parts[PoolRequests].apply(work, principal, spec))
    return answer(pools_seen([stored_pool(pool)], call)[0])


@POOLS.router.delete("/{ref}", response_model=PoolView)
async def delete_pool(call: Call, ref: str) -> Response:
    """Delete a pool with all its slices, whatever runs on them; for admins."""
    return await _change(call, ref, PoolRequests.delete)


class ReplaceSpec(Spec):
    """How many outdated slices are replaced at a time; 0 ends that."""

    at_a_time: Annotated[Whole, Field(ge=0, le=MAX_SLICES)] = 1


@POOLS.router.post("/{ref}/replace", response_model=PoolView, openapi_extra=json_body(ReplaceSpec))
async def replace_slices(request: Request, call: Call, ref: str) -> Response:
    """Have outdated slices of a pool replaced, idle ones first, each once its work has ended; for
    admins. It stops with the first new slice that fails."""
    call.must_be_admin(_CHANGE)
    at_a_time = (await read_spec(request, ReplaceSpec)).at_a_time

    def replace_some(requests: PoolRequests, work: Work, by: Principal, name: str) -> Pool:
        return requests.replace(work, by, name, at_a_time)

    return await _change(call, ref, replace_some)


async def _change(
    call: Caller, ref: str, act: Callable[[PoolRequests, Work, Principal, str], Pool]
) -> Response:
    call.must_be_admin(_CHANGE)
    found = await call.read(read_pool, call.principal, ref)
    if found.status in POOL_TABLE.terminal:
        raise NotFound(f"pool {found.name} was deleted")

    def change(work: Work, parts: Parts) -> Pool:
        return act(parts[PoolRequests], work, call.principal, found.name)

    changed = await call.change(change)
    return answer(pools_seen([stored_pool(changed)], call)[0])


add_verb(POOLS, PAUSE_POOL, _change, PoolRequests.pause)
add_verb(POOLS, RESUME_POOL, _change, PoolRequests.resume)
