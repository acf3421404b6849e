"""Deployments that end with their owner."""

from collections.abc import Callable

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Deployment
from muster.control.deployment.requests import DeploymentRequests
from muster.control.engine.owned_work import OwnedWork
from muster.control.engine.work import Work
from muster.core.ids import SessionId
from muster.core.owner import Owner, Principal


class OwnedDeployments(OwnedWork):
    """Deployments, with the sessions that are their replicas."""

    plural = "deployments"

    def __init__(self, requests: DeploymentRequests, routes: Routes) -> None:
        self._requests = requests
        self._routes = routes

    def owned(self, work: Work, concerned: Callable[[Owner], bool]) -> list[str]:
        live = (each for each in work.live.of(Deployment).values() if not each.is_going)
        return [deployment.id for deployment in live if concerned(deployment.owner)]

    def end(self, work: Work, by: Principal, id_: str) -> None:
        self._requests.destroy(work, by, id_)

    def drives(self, session: SessionId) -> bool:
        return self._routes.of_session(session) is not None
