"""TellOutages: channels hear of a deployment that serves nobody any more, and of its return."""

import math
from collections.abc import Iterable

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Deployment, DeploymentId, Route
from muster.control.deployment.lifecycle import OUTAGE_S
from muster.control.deployment.standing import in_traffic
from muster.control.deployment.telling import DeploymentTeller
from muster.control.engine.handler import FollowingHandler, Stage
from muster.control.engine.work import Work
from muster.core.reasons import Reason, ReasonCode
from muster.core.states.deployment import EndpointLifecycle

_E = EndpointLifecycle


class TellOutages(FollowingHandler[Deployment]):
    """Tells of deployments that served and lost their last serving replica. Where no replica is
    wished, or none has served since then, nobody misses any."""

    name = "TellOutages"
    stage = Stage.TELL
    entity = Deployment
    statuses = frozenset({_E.SCALING, _E.READY, _E.DEPLOYING, _E.DESTROYING})

    def __init__(
        self, routes: Routes, teller: DeploymentTeller, deployments: Iterable[Deployment]
    ) -> None:
        self._routes = routes
        self._teller = teller
        self._serving: set[DeploymentId] = {each.id for each in deployments if self._serves(each)}

    def follow(self, record: Deployment, work: Work) -> None:
        if record.is_going:
            self._serving.discard(record.id)  # nobody is told of an end that was wished
        elif self._serves(record):
            self._serving.add(record.id)
            if record.outage_told and record.unserved_at is not None:
                self._teller.serves_again(work, record, work.now - record.unserved_at)
            self._forget(record, work)
        else:
            self._serves_nobody(record, work)

    def _serves_nobody(self, record: Deployment, work: Work) -> None:
        served = record.id in self._serving
        self._serving.discard(record.id)
        if not record.replicas:
            self._forget(record, work)
        elif served and record.unserved_at is None:
            record.unserved_at = work.now
            work.unit.touch(record)
        if record.unserved_at is None or record.outage_told:
            return
        if work.now >= record.unserved_at + OUTAGE_S:
            record.outage_told = True
            work.unit.touch(record)
            self._teller.serves_nobody(work, record, OUTAGE_S, self._why(record))

    def _serves(self, deployment: Deployment) -> bool:
        return bool(in_traffic(deployment, self._routes, math.inf))

    def _forget(self, deployment: Deployment, work: Work) -> None:
        if deployment.unserved_at is not None:
            deployment.unserved_at, deployment.outage_told = None, False
            work.unit.touch(deployment)

    def _why(self, deployment: Deployment) -> Reason | None:
        """The reason of the latest of the replicas of which something is known."""
        known = [each.reason for each in self._routes.of(deployment) if _tells(each)]
        return known[-1] if known else deployment.reason


def _tells(route: Route) -> bool:
    return route.reason is not None and route.reason.code is not ReasonCode.ROUTE_NOT_NEEDED
