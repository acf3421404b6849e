"""The autoscaler over HTTP: what each group with pools has, and what was decided about its
demand."""

from collections.abc import Mapping

from fastapi import APIRouter
from msgspec.structs import asdict, replace
from starlette.responses import Response

from muster.api.answers import answer
from muster.api.context import Call, Caller
from muster.api.resources.pools import pool_seen
from muster.control.pool.decisions import decision_view
from muster.control.pool.outlook import GroupOutlook
from muster.control.pool.queries import EndedUse, read_ended_use
from muster.control.pool.records import Pool, Slice
from muster.control.pool.stored_decisions import StoredDecision, read_decisions, seen_by
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
    is_known = all(_outlook(name, call) for name in names)
    stored = {} if is_known else await call.read(read_decisions)
    found = [_group(call, name, ended, stored) for name in names]
    return answer(AutoscalerPage(items=tuple(found)))


def _group(
    call: Caller, name: str, ended: EndedUse, stored: Mapping[str, StoredDecision]
) -> AutoscalerView:
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
    outlook = _outlook(name, call)
    if outlook is not None:
        pool_of: dict[str, str] = {each.id: each.pool for each in slices}
        decision = decision_view(outlook, live, pool_of, call.principal)
        return replace(view, decided_at=outlook.decided_at, **asdict(decision))
    former = stored.get(name)
    if former is None:
        return view  # nothing was decided yet
    decision = seen_by(call.principal, former.view, live)
    return replace(view, decided_at=former.decided_at, is_former=True, **asdict(decision))


def _outlook(name: str, call: Caller) -> GroupOutlook | None:
    """The last decision that this controller made about a group."""
    outlook = call.api.plane.parts[ClusterState].groups[name].outlook
    return outlook if isinstance(outlook, GroupOutlook) else None
