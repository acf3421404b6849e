"""Agents, as the control plane composes them."""

from muster.control.agent.desk import AgentDesk
from muster.control.agent.drain import DrainAgents
from muster.control.agent.health_reports import HealthReports
from muster.control.agent.hello import Greeter
from muster.control.agent.leases import LeaseBook
from muster.control.agent.lifecycle import (
    AgentLifecycle,
    DetectLoss,
    DetectSilence,
    GrantLeases,
)
from muster.control.agent.probe_reports import ProbeReports
from muster.control.agent.requests import AgentRequests
from muster.control.engine.declared import Declared
from muster.control.engine.module import Context, Module
from muster.control.engine.work import Work
from muster.control.session.cluster.state import ClusterState
from muster.control.session.kernel_reports import KernelReports
from muster.control.session.lifecycle import SessionLifecycle
from muster.store.live import Live


class AgentModule(Module):
    """Declares agents, and has the desk perform the effects that are meant for them.

    Args:
        leases: the book of the terms that agents may be granted, and of when each agent was heard;
            the gateway uses the same book.
    """

    def __init__(self, desk: AgentDesk, leases: LeaseBook) -> None:
        self._desk = desk
        self._leases = leases
        self.performers = desk.performers

    def begin(self, live: Live, before: Live | None) -> None:
        self._desk.begin(live, before)

    def declare(self, context: Context) -> Declared:
        parts, leases = context.parts, self._leases
        cluster, kernel_reports = parts[ClusterState], parts[KernelReports]
        agents = AgentLifecycle(cluster, leases)
        return Declared(
            lifecycles=[agents],
            handlers=[
                GrantLeases(leases),
                DetectSilence(leases, self._desk.unheard),
                DetectLoss(kernel_reports, leases, self._desk.unheard),
                DrainAgents(parts[SessionLifecycle]),
            ],
            offers=[
                agents,
                Greeter(agents, kernel_reports, cluster, leases),
                AgentRequests(agents, cluster, kernel_reports),
                HealthReports(),
                ProbeReports(),
                leases.counters,
            ],
        )

    def committed(self, work: Work) -> None:
        self._desk.committed(work)

    def sweep(self, work: Work, since: float) -> None:
        self._desk.sweep()

    def catch_up(self) -> None:
        self._desk.catch_up()
