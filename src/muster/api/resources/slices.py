"""Slices over HTTP."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from muster.api.answers import answer
from muster.api.bodies import read_spec
from muster.api.context import Call, Caller
from muster.api.openapi import json_body
from muster.api.resource import Resource
from muster.api.verbs import add_verb
from muster.control.agent.explanation import held_up_by
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.pool.autoscaler import RouteDemand
from muster.control.pool.explanation import explain_ended_slice, explain_slice
from muster.control.pool.fleet import Fleet
from muster.control.pool.queries import list_slices, read_slice
from muster.control.pool.records import SLICE, Pool, Slice
from muster.control.pool.requests import PoolRequests
from muster.control.pool.views import live_slice
from muster.control.session.cluster.state import ClusterState
from muster.core.owner import Principal
from muster.core.specs.amounts import Duration, Spec
from muster.core.verbs.pools import HOLD_SLICE, RELEASE_SLICE
from muster.core.views.placement import WhyView
from muster.core.views.pools import SlicePage, SliceView
from muster.store.live import Live

_CHANGE = "change slices"


def slices_seen(views: Sequence[SliceView], call: Caller) -> list[SliceView]:
    """Slices as they are now."""
    plane, now = call.api.plane, call.api.clock.now()
    if plane.is_broken:
        return list(views)
    fleet, slices = plane.parts[Fleet], plane.live.of(Slice)
    pools = {pool.name: pool for pool in plane.live.of(Pool).values()}
    found = ((view, slices.get(view.id)) for view in views)
    return [
        view
        if slice_ is None
        else live_slice(slice_, fleet, pools.get(slice_.pool), now, counts=not view.machines)
        for view, slice_ in found
    ]


def _explain(live: Live, parts: Parts, id_: str, now: float, asker: Principal) -> WhyView:
    slice_, fleet = live.of(Slice)[id_], parts[Fleet]
    cluster, pool = parts[ClusterState], fleet.pool(slice_.pool)
    holders, holds = partial(held_up_by, live, cluster.guard, now), cluster.machine_holds
    return explain_slice(slice_, pool, fleet, parts[RouteDemand], holders, holds, now)


def _filters(
    pool: Annotated[str | None, Query(description="of this pool", max_length=64)] = None,
) -> Mapping[str, Any]:
    return {"pool": pool}


SLICES: Resource[Slice, SliceView] = Resource(
    entity=SLICE,
    path="/v1/slices",
    view=SliceView,
    page=SlicePage,
    as_seen=slices_seen,
    read=read_slice,
    list_of=list_slices,
    filters=_filters,
    explain=_explain,
    explain_ended=explain_ended_slice,
)


class DrainSpec(Spec):
    """How long work may stay on the slice; null is to its end."""

    deadline: Duration | None = None


@SLICES.router.post("/{ref}/drain", response_model=SliceView, openapi_extra=json_body(DrainSpec))
async def drain_slice(request: Request, call: Call, ref: str) -> Response:
    """Delete a slice once its work has ended, or had to leave; it takes no more; for admins."""
    call.must_be_admin(_CHANGE)
    deadline_s = (await read_spec(request, DrainSpec)).deadline
    return await _change(
        call,
        ref,
        lambda requests, work, by, id_: requests.delete_slice(work, by, id_, deadline_s),
    )


@SLICES.router.delete("/{ref}", response_model=SliceView)
async def delete_slice(call: Call, ref: str, gone: bool = False) -> Response:
    """Delete a slice; work on it has to leave at once; for admins. With ``gone`` they vouch that
    its machines are off for good, and the slice ends though its provider cannot delete them."""

    def delete(requests: PoolRequests, work: Work, by: Principal, id_: str) -> Slice:
        if gone:
            return requests.give_up_slice(work, by, id_)
        return requests.delete_slice(work, by, id_, 0.0)

    return await _change(call, ref, delete)


async def _change(
    call: Caller, ref: str, act: Callable[[PoolRequests, Work, Principal, str], Slice]
) -> Response:
    call.must_be_admin(_CHANGE)
    found = await call.read(read_slice, call.principal, ref)

    def change(work: Work, parts: Parts) -> Slice:
        return act(parts[PoolRequests], work, call.principal, found.id)

    changed = await call.change(change)
    fleet = call.api.plane.parts[Fleet]
    pool = fleet.pool(changed.pool)
    return answer(live_slice(changed, fleet, pool, call.api.clock.now()))


add_verb(SLICES, HOLD_SLICE, _change, partial(PoolRequests.hold, held=True))
add_verb(SLICES, RELEASE_SLICE, _change, partial(PoolRequests.hold, held=False))
