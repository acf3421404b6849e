"""The slices of a group, as the plan of slices sees them."""

from collections.abc import Mapping
from dataclasses import replace

from muster.autoscaling.decision import RoutingDecision
from muster.autoscaling.slice_plan import SliceState
from muster.control.engine.work import Work
from muster.control.pool.fleet import Fleet
from muster.control.pool.records import Slice
from muster.control.session.cluster.state import ClusterState
from muster.core.ids import AgentId
from muster.core.specs.pool import SLICE
from muster.store.live import Live


class SliceStates:
    """The states of slices, and the sessions that are to find room on them."""

    def __init__(self, live: Live, cluster: ClusterState, fleet: Fleet) -> None:
        self._live = live
        self._cluster = cluster
        self._fleet = fleet

    def promised(self, decision: RoutingDecision) -> Mapping[str, int]:
        """How many sessions are to find room on each slice."""
        promised: dict[str, int] = {}
        slice_of: dict[AgentId, str | None] = {}
        for routed in decision.routed:
            on: set[str] = set()
            for kernel in routed.kernels:
                id_ = kernel.agent_id
                if id_ not in slice_of:
                    slice_of[id_] = self._slice_of(id_)
                its = slice_of[id_]
                if its is not None:
                    on.add(its)
            for its in on:
                promised[its] = promised.get(its, 0) + 1
        return promised

    def _slice_of(self, id_: AgentId) -> str | None:
        agent = self._live.agents.get(id_)
        if agent is not None:
            return agent.fixed.get(SLICE)
        return id_.rpartition("/")[0] or None

    def of(self, slice_: Slice, promised: int, work: Work) -> SliceState:
        """The state of a slice on which so many sessions are to find room; since when it is idle
        is noted in its record."""
        busy = self._fleet.is_used(slice_)
        if busy or promised:
            if slice_.idle_since is not None:
                slice_.idle_since = None
                work.unit.touch(slice_)
        elif slice_.idle_since is None:
            slice_.idle_since = work.now
            work.unit.touch(slice_)
        hold = self._fleet.awaited(slice_, self._cluster.machine_holds, work.now)
        state = SliceState(
            slice_.id,
            slice_.pool,
            slice_.idle_since,
            busy=busy,
            promised=promised,
            held_by=slice_.held_by,
            isolated=self._fleet.isolated(slice_),
        )
        return state if hold is None else replace(state, awaited=hold.job, awaited_until=hold.until)
