"""The holders of resources that work waits for, as far as the asker may see them.

Only a bounded number of agents, and of sessions of a quota's owner, are looked at.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
from msgspec.structs import asdict

from muster.control.session.cluster.state import ClusterState
from muster.control.session.cluster.workloads import placed_since
from muster.core import sentences
from muster.core.owner import Principal
from muster.core.reasons.of_agents import LacksFree, NoSingleDevice
from muster.core.reasons.of_quotas import ModelQuotaInUse, QuotaInUse
from muster.core.resources import AmountUnit, unit_of
from muster.core.specs import Level
from muster.core.views.base import OwnerView
from muster.core.views.placement import AheadView, HolderView, HoldingView
from muster.scheduling.accounting.limits import Limit
from muster.scheduling.accounting.usage import ScopeUsage
from muster.scheduling.cluster.columns import Columns, Ints
from muster.scheduling.cluster.constraints import eligible
from muster.scheduling.explaining.explain import Explanation
from muster.scheduling.explaining.shortfalls import RequestExplanation
from muster.scheduling.passes.pass_result import LACKS_ROOM, NamesAnother
from muster.scheduling.workload import WorkloadClass
from muster.store.live import Live
from muster.store.records import Session

MOST_HOLDERS = 5
"""Holders that are named; the others are counted together, apart from the asker's own."""
_MOST_AGENTS = 8
_MOST_SESSIONS = 20_000

_Hold = tuple[Session | None, int]
"""A holder and its amount; None stands for the remains of a session that has ended."""


@dataclass(slots=True)
class _Sum:
    """The sum of the amounts that sessions hold which are shown as one holder."""

    first: Session
    amount: int = 0
    sessions: int = 0
    since: float = float("inf")


def holdings(
    found: Explanation,
    waiting: Session,
    live: Live,
    cluster: ClusterState,
    asker: Principal,
    now: float,
) -> tuple[HoldingView, ...]:
    """The holders of the room and the quotas for which the session waits."""
    told = []
    if any(why.code in LACKS_ROOM for why in found.reasons):
        for request in found.requests:
            room = _room(request, waiting, live, cluster, asker, now)
            if room is not None:
                told.append(room)
                break
    quotas = (why for why in found.reasons if isinstance(why, QuotaInUse | ModelQuotaInUse))
    told += filter(None, (_quota(why, cluster, asker, now) for why in quotas))
    return tuple(told)


def ahead_of(found: Explanation, live: Live, asker: Principal, now: float) -> AheadView | None:
    """The session ahead in the queue that keeps the room which the explained session needs; None if
    there is none."""
    for why in found.reasons:
        session = live.sessions.get(why.session) if isinstance(why, NamesAnother) else None
        if session is not None:
            holder = _holder(_Sum(session, sessions=1, since=session.created_at), "", asker)
            return AheadView(**asdict(holder), sentence=sentences.ahead(holder, now))
    return None


def _room(
    request: RequestExplanation,
    waiting: Session,
    live: Live,
    cluster: ClusterState,
    asker: Principal,
    now: float,
) -> HoldingView | None:
    """The holders of the resource that most agents are short of, on the agents that have the most
    of it free."""
    resource = _lacking(request)
    snapshot, workload = cluster.groups[waiting.group].snapshot, cluster.workload(waiting)
    slots = snapshot.emptied(all_accept=True).columns.fitting(request.request)
    mask = eligible(snapshot, workload)
    slots = slots if mask is None else slots[mask[slots]]
    if resource is None or not slots.size:
        return None
    free, capacity = _amounts(snapshot.columns, resource, slots)
    nearest = np.argsort(-free, kind="stable")[:_MOST_AGENTS]
    agents = [live.agents[snapshot.ids[slot]] for slot in slots[nearest].tolist()]
    names = tuple(agent.name for agent in agents)
    limit, left = int(capacity[nearest].sum()), int(free[nearest].sum())
    holds = (
        (
            kernel.session if kernel is not None else None,
            allocation.resources.as_dict().get(resource, 0),
        )
        for agent in agents
        for allocation in live.allocations_on.get(agent.id, {}).values()
        if allocation.charged
        for kernel in [live.kernels.get(allocation.kernel_id)]
    )
    unit = unit_of(resource)
    holders = _holders(holds, unit, asker)
    held_text, limit_text = unit.written(limit - left), unit.written(limit)
    where = sentences.on_agents(names)
    return HoldingView(
        sentence=sentences.in_use(resource, held_text, limit_text, where, holders, now),
        resource=resource,
        held=held_text,
        limit=limit_text,
        held_amount=limit - left,
        limit_amount=limit,
        agents=names,
        holders=holders,
    )


def _lacking(request: RequestExplanation) -> str | None:
    """The resource that the largest group of agents is short of."""
    for group in request.groups:
        for why in group.shortfalls:
            if isinstance(why, NoSingleDevice):
                return "gpu"
            if isinstance(why, LacksFree):
                return why.resource.split(" (")[0]
    return None


def _amounts(columns: Columns, resource: str, slots: Ints) -> tuple[Ints, Ints]:
    """The free amount and the capacity of the resource, by agent."""
    if resource == "gpu":
        return columns.device_free[slots].sum(axis=1), columns.device_capacity[slots].sum(axis=1)
    dimension = columns.dimensions.index(resource)
    return columns.free[slots, dimension], columns.capacity[slots, dimension]


def _quota(
    why: QuotaInUse | ModelQuotaInUse, cluster: ClusterState, asker: Principal, now: float
) -> HoldingView | None:
    level, name, resource = Level(why.level), why.owner, why.resource
    usage, models = cluster.accounting.usage.of((level, name)), cluster.accounting.usage.models
    if cluster.accounting.quotas.of((level, name)) is None:
        return None
    counts = resource == "sessions"
    limit = Limit(resource, why.limit, 0, group=why.in_group, model=why.model)
    held = usage.sessions if counts else limit.used(usage, models)
    placed = islice(cluster.placed_of(level, name), _MOST_SESSIONS)
    holds = (
        (each, 1 if counts else limit.used(_alone(workload), models)) for each, workload in placed
    )
    unit, of = AmountUnit.COUNT if counts else unit_of(resource), f"{level} {name}"
    holders = _holders(holds, unit, asker)
    held_text, limit_text = unit.written(held), unit.written(limit.limit)
    told = resource if limit.model is None else f"{resource} ({limit.model})"
    where = f"of {of}" if limit.group is None else f"of {of} in group {limit.group}"
    return HoldingView(
        sentence=sentences.in_use(told, held_text, limit_text, where, holders, now),
        resource=resource,
        held=held_text,
        limit=limit_text,
        held_amount=held,
        limit_amount=limit.limit,
        quota=of,
        holders=holders,
    )


def _alone(workload: WorkloadClass) -> ScopeUsage:
    """The usage by one session of the class."""
    return ScopeUsage(dict(workload.total), 1, parts=dict(workload.parts))


def _holders(holds: Iterable[_Hold], unit: AmountUnit, asker: Principal) -> tuple[HolderView, ...]:
    """The holders that the asker may see by name, the largest first; then the asker's own that are
    past the limit as one, and all others as one."""
    named: dict[str, _Sum] = {}
    seen: set[str] = set()
    others, amount_of_others, unnamed = 0, 0, set[str]()
    for session, amount in holds:
        if not amount:
            continue
        if session is None or not asker.may_see(session.owner):
            amount_of_others += amount
            if session is None:
                others += 1
            else:
                unnamed.add(session.id)
            continue
        key = session.job.id if session.job is not None else session.id
        total = named.setdefault(key, _Sum(session))
        total.amount += amount
        total.sessions += session.id not in seen
        total.since = min(total.since, placed_since(session))
        seen.add(session.id)
    ordered = sorted(named.values(), key=lambda each: (-each.amount, each.since))
    told = [_holder(each, unit.written(each.amount), asker) for each in ordered[:MOST_HOLDERS]]
    others += len(unnamed)
    own, amount_of_own = 0, 0
    for each in ordered[MOST_HOLDERS:]:
        if asker.owns(each.first.owner):
            own += each.sessions
            amount_of_own += each.amount
        else:
            others += each.sessions
            amount_of_others += each.amount
    for sessions, amount, yours in (own, amount_of_own, True), (others, amount_of_others, False):
        if sessions:
            text = unit.written(amount)
            told.append(HolderView(sessions=sessions, amount=text, held_amount=amount, yours=yours))
    return tuple(told)


def _holder(total: _Sum, amount: str, asker: Principal) -> HolderView:
    session = total.first
    if not asker.may_see(session.owner):
        return HolderView(sessions=total.sessions, amount=amount, held_amount=total.amount)
    name = session.job.name if session.job is not None else session.name or session.id
    return HolderView(
        sessions=total.sessions,
        amount=amount,
        held_amount=total.amount,
        name=name,
        owner=OwnerView.of(session.owner),
        yours=asker.owns(session.owner),
        since=total.since,
    )
