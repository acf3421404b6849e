"""Results, as a prober reports them from its thread."""

from collections.abc import Sequence

from tests.patience import until

from muster.core.serving.probes import ProbeResult, Watched
from muster.core.specs.serving import ProbeSpec, ScaleMetric, ScaleSpec


class Told:
    """Results that were reported."""

    def __init__(self) -> None:
        self.reports: list[Sequence[ProbeResult]] = []

    def __call__(self, results: Sequence[ProbeResult]) -> None:
        self.reports.append(results)

    def of(self, route: str) -> list[ProbeResult]:
        return [each for report in list(self.reports) for each in report if each.route == route]

    def last(self, route: str, streak: int = 1) -> ProbeResult:
        """The last result of a route, once there were so many in a row."""
        until(lambda: any(each.streak >= streak for each in self.of(route)))
        return self.of(route)[-1]

    def until_said(self, route: str, detail: str) -> None:
        until(lambda: any(each.detail == detail for each in self.of(route)))


def watched(
    route: str,
    port: int,
    probe: ProbeSpec | None = None,
    *,
    generation: int = 1,
    host: str = "127.0.0.1",
    metric: str | None = None,
) -> Watched:
    scale = None
    if metric is not None:
        scale = ScaleSpec(max=9, metric=ScaleMetric.PROMETHEUS, name=metric, path="/numbers")
    return Watched(route, generation, host, port, probe or quick(), scale)


def quick(**fields: object) -> ProbeSpec:
    """A probe that is made often, and does not wait for long."""
    return ProbeSpec.model_validate({"interval": 0.1, "timeout": 0.4, **fields})
