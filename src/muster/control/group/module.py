"""Scaling groups and quotas, as the control plane composes them."""

from muster.control.engine.declared import Declared
from muster.control.engine.module import Context, Module
from muster.control.group.requests import GroupRequests
from muster.control.session.cluster.state import ClusterState


class GroupModule(Module):
    def declare(self, context: Context) -> Declared:
        return Declared(offers=[GroupRequests(context.parts[ClusterState])])
