"""Updates of deployments: a former replica goes once enough others serve, and have done so for a
while. Judged by the probes that control took, as it committed them."""

from muster.control.deployment.entity import Deployment, Route
from muster.control.deployment.traffic import Traffic
from muster.core.reasons import ReasonCode
from muster.core.states.deployment import RouteStatus
from muster.store.unit import Unit
from proving.swarm.invariants.deployments import SERVING, runs, serves
from proving.swarm.judge import Invariant, Judge
from proving.swarm.oracle.room import NOTICED_S


class UpdatesKeepServing(Invariant):
    """A new replica counts once all of its probes were good for ``min_healthy_time``, a former one
    if its last was; neither does before it was found healthy. What is lost by itself, or with its
    machine, is not the doing of an update; replicas that an update left behind which was given up
    or undone go within the disruption. Where all replicas are bad at once, requests go where they
    went."""

    says = "what serves is never less than the update allows"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._good_since: dict[str, float] = {}
        self._published: set[str] = set()

    def committed(self, unit: Unit) -> None:
        before = dict(self._good_since)
        for route in unit.touched[Route]:
            if serves(route):
                self._good_since.setdefault(route.name, unit.now)
            else:
                self._good_since.pop(route.name, None)
        # One that is found bad in this commit goes for that.
        taken: dict[Deployment, list[Route]] = {}
        for route, stored in unit.touched[Route].items():
            went = route.status is RouteStatus.TERMINATING and stored in SERVING
            served = route.name in before and route.good is not False
            if went and _is_replaced(route) and served and runs(route, unit.live):
                taken.setdefault(route.deployment, []).append(route)
        for deployment, routes in taken.items():
            self._judge(deployment, routes, unit)

    def _judge(self, deployment: Deployment, routes: list[Route], unit: Unit) -> None:
        wanted, spec = deployment.replicas, deployment.spec
        surge = spec.update.surge.of(wanted, up=True)
        allowed = spec.update.unavailable.of(wanted, up=False)
        if not (surge or allowed):
            allowed = 1  # else nothing could ever be replaced
        if deployment.rollout is None:  # the way back from an update that ended is a disruption
            allowed = max(allowed, spec.disruptable(wanted))
        left = sum(
            self._counts(each, unit)
            for each in unit.live.of(Route).values()
            if each.deployment is deployment
        )
        self.expect(
            left >= wanted - allowed,
            f"{[each.name for each in routes]} are replaced, and {left} of {wanted} serve and have "
            f"done so for {spec.update.min_healthy_time:g} s, of which {allowed} may be missing",
        )

    def _counts(self, route: Route, unit: Unit) -> bool:
        if route.status not in SERVING or not serves(route) or not runs(route, unit.live):
            return False
        if route.revision != route.deployment.revision:
            return True
        since = self._good_since.get(route.name)
        needs_s = route.deployment.spec.update.min_healthy_time
        return since is not None and unit.now - since >= needs_s - NOTICED_S

    def between_steps(self) -> None:
        controller = self.world.controller
        if controller is None or not controller.is_idle or self.world.is_broken:
            return
        live = controller.store.live
        published = {
            service.id
            for service in controller.plane.parts[Traffic].view().services
            if any(target.weight for target in service.targets)
        }
        for deployment in live.of(Deployment).values():
            its = [each for each in live.of(Route).values() if each.deployment is deployment]
            well = [each.name for each in its if _is_healthy(each)]
            is_left_out = deployment.id in self._published - published
            self.expect(
                not (well and is_left_out and not deployment.is_going),
                f"{deployment.id} got requests, and gets none, though {well} are HEALTHY",
            )
        self._published = published


def _is_replaced(route: Route) -> bool:
    """Whether an update takes a former replica away, and nothing else."""
    why, deployment = route.reason, route.deployment
    by_update = why is not None and why.code is ReasonCode.ROUTE_NOT_NEEDED
    is_former = route.revision != deployment.revision
    stays = deployment.rollout is not None or deployment.stable == deployment.revision
    return by_update and is_former and stays and not deployment.is_going


def _is_healthy(route: Route) -> bool:
    return route.status is RouteStatus.HEALTHY and route.address is not None
