"""ScaleByLoad: numbers of replicas that follow load."""

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Deployment
from muster.control.deployment.loads import Loads
from muster.control.deployment.requests import DeploymentRequests
from muster.control.deployment.standing import standing
from muster.control.engine.handler import FollowingHandler, Stage
from muster.control.engine.work import Work
from muster.core.reasons.of_deployments import ScaledByLoad
from muster.core.results import SchedulingResult
from muster.core.specs.serving import ScaleMetric, ScaleSpec
from muster.core.states.deployment import UP, EndpointLifecycle
from muster.serving import replicas
from muster.serving.load import LoadMemory, follow

_E = EndpointLifecycle
_WORDS = {
    ScaleMetric.REQUESTS: "requests under way",
    ScaleMetric.RATE: "requests a second",
    ScaleMetric.PROMETHEUS: "",  # it has a name of its own
}


class ScaleByLoad(FollowingHandler[Deployment]):
    """Wishes another number of replicas where load asks for it. What is remembered of the load is
    not stored: a controller that was restarted learns it anew, and changes nothing until then."""

    name = "ScaleByLoad"
    stage = Stage.EXPAND
    entity = Deployment
    statuses = frozenset({_E.SCALING, _E.READY, _E.DEPLOYING})

    def __init__(
        self,
        routes: Routes,
        loads: Loads,
        requests: DeploymentRequests,
        memories: dict[str, LoadMemory],
    ) -> None:
        self._routes = routes
        self._loads = loads
        self._requests = requests
        self._memories = memories

    def follow(self, record: Deployment, work: Work) -> None:
        scale, now = record.spec.scale, work.now
        if scale is None:
            self._memories.pop(record.id, None)
            return
        memory = self._memories.get(record.id)
        if memory is None:
            memory = LoadMemory(busy_at=now, changed_at=record.scaled_at)
        up = [each for each in self._routes.of(record) if each.status in UP]
        serving = sum(standing(each, now) in replicas.UP for each in up)
        load = self._load(record, scale, now)
        decision = follow(
            memory,
            scale,
            load,
            self._loads.held(record.id, now),
            record.replicas,
            max(record.replicas - serving, 0),
            record.spec.probe.start_timeout,
            now,
        )
        self._memories[record.id] = decision.memory
        before = record.replicas
        if decision.wanted == before:
            return
        why = ScaledByLoad(
            before=before,
            after=decision.wanted,
            how=decision.why.code,
            load=round(decision.why.numbers.get("load", 0.0), 2),
            metric=scale.name or _WORDS[scale.metric],
            target=scale.target,
        )
        self._requests.set_replicas(work, record, decision.wanted)
        work.unit.note(record, self.name, SchedulingResult.SUCCESS, why)

    def _load(self, deployment: Deployment, scale: ScaleSpec, now: float) -> float | None:
        """The load of all replicas; None if it is not known of all of them."""
        routes = self._routes.of(deployment)
        if scale.metric is not ScaleMetric.PROMETHEUS:
            if not self._loads.is_known(now):
                return None
            by_rate = scale.metric is ScaleMetric.RATE
            of_route = self._loads.rate if by_rate else self._loads.in_flight
            return float(sum(of_route(route) for route in routes))
        total = 0.0
        serving = [route for route in routes if standing(route, now) in replicas.UP]
        if deployment.replicas and not serving:
            return None  # that none can tell is no sign of rest
        for route in serving:
            heard = self._routes.heard(route)
            if heard.value is None or heard.completed_at is None:
                return None
            if now - heard.completed_at > route.probe.stale_after_s():
                return None
            total += heard.value
        return total
