"""The autoscaler over HTTP: what each group with pools has, and what was decided about its
demand."""

from fastapi import APIRouter
from msgspec.structs import replace
from starlette.responses import Response

from muster.api.answers import answer
from muster.api.context import Call, Caller
from muster.api.pools import pool_seen
from muster.control.pool.decisions import routed_views, unmet_views, withheld_views
from muster.control.pool.entries import entry_views, pending_views
from muster.control.pool.outlook import GroupOutlook
from muster.control.pool.queries import EndedUse, read_ended_use
from muster.control.pool.records import Pool, Slice
from muster.control.pool.views import by_status, machine_hours, slices_by_pool
from muster.control.session.cluster.state import ClusterState
from muster.core.views.pools import AutoscalerPage, AutoscalerView, UsageView

router = APIRouter(tags=["autoscaler"])

MAX_POOLS = 100
"""Pools of a group that are told."""


@router.get("/v1/autoscaler", response_model=AutoscalerPage)
async def get_autoscaler(call: Call, group: str | None = None) -> Response:
    """Scaling groups with pools: their slices, the last decision about their demand, and what the
    machines cost."""
    if group is not None:
        call.api.plane.live.group(group)
    ended = await call.read(read_ended_use)
    live = call.api.plane.live
    names = sorted({pool.group for pool in live.of(Pool).values() if group in (None, pool.group)})
    return answer(AutoscalerPage(items=tuple(_group(call, name, ended) for name in names)))


def _group(call: Caller, name: str, ended: EndedUse) -> AutoscalerView:
    plane, now = call.api.plane, call.api.clock.now()
    live, spec = plane.live, plane.live.groups[name]
    pools = [pool for pool in live.of(Pool).values() if pool.group == name]
    pools.sort(key=lambda pool: pool.name)
    slices = [each for each in live.of(Slice).values() if each.group == name]
    of_pool = slices_by_pool(slices)
    told = [pool_seen(pool, of_pool.get(pool.name, []), call) for pool in pools[:MAX_POOLS]]
    hours = [(machine_hours(each, now), each.spec.price) for each in slices]
    view = AutoscalerView(
        group=name,
        pools=tuple(told),
        other_pools=len(pools) - len(told),
        slices=by_status(slices),
        leaving=sum(each.doomed is not None for each in slices),
        machines=sum(len(each.machines) for each in slices),
        gpus=sum(len(each.machines) * each.spec.machine.gpus for each in slices),
        price=sum(each.price for each in slices),
        max_machines=spec.max_machines,
        max_gpus=spec.max_gpus,
        max_price=spec.max_price,
        live=UsageView(
            slices=len(slices),
            machine_hours=sum(each for each, _ in hours),
            cost=sum(each * price for each, price in hours),
        ),
        ended=ended.by_group.get(name, UsageView()),
        ended_since=ended.since,
    )
    outlook = plane.parts[ClusterState].groups[name].outlook
    if not isinstance(outlook, GroupOutlook):
        return view  # nothing was decided yet
    pool_of: dict[str, str] = {each.id: each.pool for each in slices}
    routed, other_routed = routed_views(outlook, pool_of, call.principal)
    unmet, other_unmet = unmet_views(outlook, call.principal)
    withheld, other_withheld = withheld_views(outlook, call.principal)
    entries, other_entries = entry_views(outlook, live, pool_of, call.principal)
    return replace(
        view,
        routed=routed,
        other_routed=other_routed,
        withheld=withheld,
        other_withheld=other_withheld,
        entries=entries,
        other_entries=other_entries,
        pending=pending_views(outlook.decision, pool_of),
        unmet=unmet,
        other_unmet=other_unmet,
        launches=dict(outlook.decision.launches),
    )
