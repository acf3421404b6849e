"""Incidents, as the control plane composes them."""

from muster.control.agent.gpu_counters import GpuCounterBook
from muster.control.agent.health_reports import HealthReports
from muster.control.engine.declared import Declared
from muster.control.engine.effects import Surroundings
from muster.control.engine.module import Context, EntityModule
from muster.control.engine.work import Work
from muster.control.health.conditions import ill_of
from muster.control.health.entity import INCIDENT, Incident
from muster.control.health.following import FollowMachines, FollowRoom, FollowServices
from muster.control.health.handlers import (
    CheckMachines,
    KeepIsolated,
    RebootMachines,
    ResetDevices,
    VerifyMachines,
    WatchChecks,
)
from muster.control.health.incidents import Incidents
from muster.control.health.lifecycle import IncidentLifecycle
from muster.control.health.rebooting.means import HardReboots
from muster.control.health.rebooting.performer import MachineRebooter
from muster.control.health.rebooting.settings import load_settings
from muster.control.health.requests import HealthRequests
from muster.control.health.room import Room
from muster.control.health.seen import SeenHealth, SeenMemory, SuspectFailing
from muster.control.health.stragglers import StragglerWatch
from muster.control.health.turns import GiveTurns
from muster.control.pool.fleet import Fleet
from muster.control.pool.slices import SliceLifecycle
from muster.control.session.cluster.state import ClusterState
from muster.control.session.lifecycle import SessionLifecycle
from muster.control.session.services import Services
from muster.store.live import Live


class HealthModule(EntityModule):
    """Declares incidents.

    Raises:
        InvalidSpec: the operator's settings are wrong.
    """

    entities = (INCIDENT,)
    after = ("pool",)

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        settings = load_settings(surroundings.settings)
        self.performers = (MachineRebooter(surroundings, settings),)
        self._reboots = HardReboots(settings, surroundings.boot_id)
        self._began_at: float | None = None
        self._seen = SeenMemory()
        self._stragglers = StragglerWatch()

    def begin(self, live: Live, before: Live | None) -> None:
        """Keep machines from work that are out for their health before placement sees them."""
        for incident in live.of(Incident).values():
            agent = live.agents.get(incident.agent_id)
            if agent is not None:
                agent.ill = ill_of(incident)

    def declare(self, context: Context) -> Declared:
        parts, live = context.parts, context.store.live
        if self._began_at is None:
            self._began_at = context.clock.now()
        sessions = parts[SessionLifecycle]
        incidents = Incidents(live, self._began_at)
        lifecycle = IncidentLifecycle(
            live, parts[ClusterState], parts[Services], self._reboots, incidents
        )
        seen = SeenHealth(self._seen, incidents, lifecycle)
        parts[HealthReports].listen(seen.hear)
        self._stragglers.listen(parts[GpuCounterBook])
        room = Room(sessions, parts[Fleet], parts[SliceLifecycle], parts[ClusterState])
        return Declared(
            lifecycles=[lifecycle],
            handlers=[
                FollowMachines(incidents, lifecycle),
                FollowServices(incidents, lifecycle),
                FollowRoom(incidents),
                GiveTurns(incidents, lifecycle),
                CheckMachines(incidents, lifecycle, room),
                WatchChecks(incidents, lifecycle, room),
                ResetDevices(incidents, lifecycle, room),
                RebootMachines(incidents, lifecycle, room),
                VerifyMachines(incidents, lifecycle, room),
                KeepIsolated(lifecycle, room),
                SuspectFailing(seen),
            ],
            offers=[
                incidents,
                lifecycle,
                HealthRequests(lifecycle),
                self._reboots,
                self._stragglers,
            ],
            watch=incidents,
        )

    def committed(self, work: Work) -> None:
        self._seen.committed(work)
        self._stragglers.committed(work)

    def sweep(self, work: Work, since: float) -> None:
        self._seen.sweep(work.live.agents, work.now)
        self._stragglers.sweep(work)
