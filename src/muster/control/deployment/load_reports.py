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
    which a revision is rolled out.

    Raises:
        Conflict: too many proxies report.
    """
    if not parts[Loads].told(report, work.now):
        raise Conflict(f"{MAX_PROXIES} proxies report already")
    for deployment in work.live.of(Deployment).values():
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
