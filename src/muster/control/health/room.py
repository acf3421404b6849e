"""Room on machines that are to be checked or healed: the work in the way leaves, and the slice of a
machine that cannot be healed is replaced."""

from collections.abc import Collection

from muster.control.engine.work import Work
from muster.control.health.entity import Incident
from muster.control.health.limits import MAY_STAY_S
from muster.control.pool.deleting import note_loss
from muster.control.pool.fleet import Fleet
from muster.control.pool.records import Slice
from muster.control.pool.slices import SliceLifecycle
from muster.control.pool.states import PoolStatus
from muster.control.session.cluster.state import ClusterState
from muster.control.session.lifecycle import SessionLifecycle
from muster.core.reasons.of_health import HealthHeals, HealthReplaced
from muster.core.specs.pool import SLICE
from muster.store.records import Agent

REPLACED_WITHIN_S = 3_600.0
"""How long work may stay on the other machines of a slice that is replaced for one of them."""


class Room:
    """Empties machines, and has those replaced that stay empty."""

    def __init__(
        self,
        sessions: SessionLifecycle,
        fleet: Fleet,
        slices: SliceLifecycle,
        cluster: ClusterState,
    ) -> None:
        self._sessions = sessions
        self._cluster = cluster
        self._fleet = fleet
        self._slices = slices

    def clear(
        self, work: Work, incident: Incident, agent: Agent, devices: Collection[int], phase: str
    ) -> None:
        """Have work leave that holds these devices, or any room on the machine if there are none,
        once it had its time to end by itself. Its tasks count as displaced."""
        if work.now < (incident.leave_by or 0.0):
            return
        why = HealthHeals(agent=agent.name)
        until = (incident.leave_by or 0.0) + MAY_STAY_S
        for row in list(work.live.allocations_on.get(agent.id, {}).values()):
            kernel = work.live.kernels.get(row.kernel_id)
            if kernel is None or kernel.generation != row.generation:
                continue  # it is told to stop already
            if kernel.session.service is not None:
                continue
            if not devices or any(share.index in devices for share in row.shares):
                self._sessions.displace(work, kernel.session, phase, why, until)

    def replace(self, work: Work, agent: Agent, phase: str) -> None:
        """Have the slice of a machine replaced, unless it is of none, an operator keeps the slice,
        its pool stands still, or work waits for the machine itself."""
        slice_ = work.live.of(Slice).get(agent.fixed.get(SLICE, ""))
        if slice_ is None or slice_.doomed is not None or slice_.held_by is not None:
            return
        pool = self._fleet.pool(slice_.pool)
        if pool is None or pool.status is PoolStatus.TRIPPED:
            return
        if self._cluster.machine_holds.on(agent.id, work.now) is not None:
            return
        note_loss(work, pool)
        why = HealthReplaced(machine=agent.name)
        until = work.now + REPLACED_WITHIN_S
        self._slices.doom(work, slice_, phase, why, failed=True, leave_by=until)
