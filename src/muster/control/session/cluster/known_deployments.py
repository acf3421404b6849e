"""Deployments, as far as jobs and sessions depend on them or use them."""

import math
from collections.abc import Collection, Iterable

from muster.core.owner import Owner
from muster.scheduling.workload import DependencyProgress, DependencyState
from muster.store.entity import Record

NO_SUCH_DEPLOYMENT = "there is no such deployment"
UNKNOWN = DependencyProgress(DependencyState.MISSING, math.inf)


class KnownDeployments:
    """No deployments. The module of deployments, which is above sessions, brings its own."""

    def find(self, owner: Owner, ref: str) -> tuple[str, DependencyProgress] | None:
        """The id and the progress of the live deployment of this name or id, if it takes requests
        of the owner's."""
        return None

    def why_not(self, owner: Owner, ref: str) -> str | None:
        """Why work of the owner's neither uses nor waits for the deployment of this name or id;
        None if it may."""
        return NO_SUCH_DEPLOYMENT

    def progress(self, id_: str) -> DependencyProgress:
        """How far the deployment of this id has come; one that is over has ended otherwise."""
        return UNKNOWN

    def replicas(self, id_: str) -> tuple[int, int]:
        """How many replicas of a deployment are healthy, and how many have to be."""
        return 0, 0

    def waiting_for(self, news: Collection[str]) -> Iterable[Record]:
        """The deployments that depend on any of this work, and have not begun."""
        return ()

    def problem_with(self, owner: Owner, name: str, group: str, now: float) -> str | None:
        """The problem with a use of the deployment of this name by work of the owner's in a group;
        None if its address can be told."""
        return "there are no deployments here"

    def url(self, name: str, host: str, now: float) -> str | None:
        """The URL of the deployment of this name, for programs on the machine that is reached at
        ``host``; None while none is known."""
        return None
