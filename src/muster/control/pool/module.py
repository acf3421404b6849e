"""Pools and slices, as the control plane composes them."""

from collections.abc import Mapping

from muster.control.agent.lifecycle import AgentLifecycle
from muster.control.engine.declared import Declared
from muster.control.engine.effects import Surroundings
from muster.control.engine.module import Context, EntityModule
from muster.control.pool.audit import AUDITS
from muster.control.pool.autoscaler import RouteDemand
from muster.control.pool.breaker import BreakPools
from muster.control.pool.consolidating import ConsolidateSlices
from muster.control.pool.deleting import DeleteSlices, ReplaceSlices, WatchSlices
from muster.control.pool.fleet import NONE, Fleet, Orphans
from muster.control.pool.making import (
    FollowAgents,
    JoinSlices,
    LimitSlices,
    MakeSlices,
    Standings,
)
from muster.control.pool.performing.performers import provider_performers
from muster.control.pool.pools import EndPools, ListPools, PoolLifecycle
from muster.control.pool.records import POOL, SLICE, Slice, SliceId
from muster.control.pool.requests import PoolRequests
from muster.control.pool.slices import SliceLifecycle, withheld
from muster.control.session.cluster.state import ClusterState
from muster.control.session.kernel_reports import KernelReports
from muster.control.session.lifecycle import SessionLifecycle
from muster.core.specs.pool import SLICE as SLICE_ATTRIBUTE
from muster.store.live import Live


class PoolModule(EntityModule):
    """Declares pools and slices."""

    entities = (POOL, SLICE)
    audits = AUDITS

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self.performers = provider_performers(surroundings)
        self._began_at: float | None = None
        self._orphans: Mapping[str, Mapping[SliceId, Orphans]] = NONE

    def begin(self, live: Live, before: Live | None) -> None:
        """Keep agents of slices that are not READY from work before placement sees them."""
        slices = live.of(Slice)
        for agent in live.agents.values():
            slice_ = slices.get(agent.fixed.get(SLICE_ATTRIBUTE, ""))
            if slice_ is not None:
                agent.withheld = withheld(slice_)

    def declare(self, context: Context) -> Declared:
        parts, live = context.parts, context.store.live
        cluster = parts[ClusterState]
        now = context.clock.now()
        if self._began_at is None:
            self._began_at = now
        fleet = Fleet(live, self._began_at, self._orphans, now)
        self._orphans = fleet.orphans
        slices = SliceLifecycle(cluster, parts[AgentLifecycle], parts[KernelReports], fleet)
        standings = Standings(fleet, slices)
        routing = RouteDemand(live, cluster, fleet, slices)
        consolidating = ConsolidateSlices(live, cluster, fleet, slices)
        pools = PoolLifecycle(fleet, slices, [routing, consolidating])
        return Declared(
            lifecycles=[pools, slices],
            handlers=[
                FollowAgents(fleet, slices),
                MakeSlices(slices, standings),
                JoinSlices(fleet, standings),
                LimitSlices(fleet, slices, standings),
                WatchSlices(fleet, slices),
                DeleteSlices(fleet, slices, parts[SessionLifecycle]),
                BreakPools(fleet),
                ReplaceSlices(fleet, slices, cluster),
                ListPools(fleet),
                EndPools(fleet),
                routing,
                consolidating,
            ],
            offers=[fleet, slices, routing, PoolRequests(fleet, slices, pools, cluster.ports)],
        )
