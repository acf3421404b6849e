"""The modules of which a cluster's control plane is made, in the order in which they build on each
other."""

from collections.abc import Sequence

from muster.control.agent.desk import AgentDesk
from muster.control.agent.leases import LeaseBook
from muster.control.agent.module import AgentModule
from muster.control.engine.module import Module
from muster.control.group.module import GroupModule
from muster.control.identity.module import IdentityModule
from muster.control.job.module import JobModule
from muster.control.session.module import SessionModule


def cluster_modules(desk: AgentDesk, leases: LeaseBook) -> Sequence[Module]:
    return (
        SessionModule(),
        JobModule(),
        AgentModule(desk, leases),
        GroupModule(),
        IdentityModule(),
    )
