"""Invariants of plug-ins that fail."""

from muster.control.session.cluster.state import ClusterState
from proving.swarm.judge import Invariant
from proving.swarm.wayward import NAMES, Wayward


class FailedPluginsServeNoMore(Invariant):
    """A built-in part serves in their place."""

    says = "a plug-in that failed serves no more, and its group names it"

    def between_steps(self) -> None:
        controller = self.world.controller
        if controller is None or self.world.is_broken:
            return
        for name, state in controller.plane.parts[ClusterState].groups.items():
            policy = state.policy
            serving = {name for _, name in policy.made}
            for (_, part_name), (_, part) in policy.made.items():
                inner = getattr(part, "inner", None)  # of a part on a leash
                if isinstance(inner, Wayward):
                    self.expect(not inner.has_failed, f"{part_name} has failed, and serves")
            spec = controller.store.live.groups[name]
            named = {*spec.validators, spec.sequencer, spec.selector, *spec.hooks.values()}
            for missing in named.intersection(NAMES.values()) - serving:
                told = {fault.name for fault in policy.refused}
                self.expect(missing in told, f"{missing} does not serve, and {name} names {told}")
