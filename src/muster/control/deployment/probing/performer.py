"""The performer that has replicas' addresses watched by the controller's prober."""

from collections.abc import Callable, Sequence

from muster.control.deployment.probing.effects import Watch
from muster.control.deployment.probing.orders import order_of
from muster.control.engine.effects import Performer
from muster.core.serving.probes import ProbeOrder, ProbeResult
from muster.probing.prober import Prober


class RouteProber(Performer[Watch]):
    """Has addresses probed, and reports results.

    Args:
        report: takes results, on a thread of the prober's.
    """

    kind = Watch

    def __init__(self, report: Callable[[Sequence[ProbeResult]], None]) -> None:
        self._prober = Prober(report)

    def perform(self, effects: Sequence[Watch]) -> None:
        self._prober.obey([_order(each) for each in effects])

    def close(self) -> None:
        """End the prober; nothing is reported afterwards, unless that is under way."""
        self._prober.close()


def _order(effect: Watch) -> ProbeOrder:
    if effect.watched is None:
        return ProbeOrder(effect.route, effect.generation)
    return order_of(effect.watched)
