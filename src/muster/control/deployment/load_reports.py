"""Reports of proxies."""

import logging
from dataclasses import dataclass

from muster.control.deployment.entity import Deployment
from muster.control.deployment.loads import MAX_PROXIES, Loads
from muster.control.engine.inputs import Input
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.core.errors import Conflict
from muster.core.serving.traffic import LoadReport

log = logging.getLogger(__name__)


def take_load(work: Work, parts: Parts, report: LoadReport) -> None:
    """Take a proxy's report. It has those deployments looked at whose number follows load, or of
    which a revision is rolled out: once a second, however many proxies there are, and at once where
    requests wait for a replica.

    Raises:
        Conflict: too many proxies report.
    """
    loads, live = parts[Loads], work.live.of(Deployment)
    if not loads.told(report, work.now):
        raise Conflict(f"{MAX_PROXIES} proxies report already")
    holding = (live.get(each.service) for each in report.services if each.held > 0)
    for deployment in live.values() if loads.are_due(work.now) else holding:
        if deployment is None:
            continue
        if deployment.spec.scale is not None or deployment.rollout is not None:
            work.mark(deployment)


@dataclass(frozen=True, slots=True)
class LoadTold(Input):
    """The report of a balancer outside Muster."""

    report: LoadReport
    is_kept = False

    def take(self, work: Work, parts: Parts) -> None:
        take_load(work, parts, self.report)

    def refuse(self, error: Exception) -> None:
        log.warning("the load that %s told is dropped: %s", self.report.proxy, error)
