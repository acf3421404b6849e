"""The performer that tells balancers outside Muster of services."""

from collections.abc import Callable, Sequence
from functools import partial

from muster.control.deployment.publishing.effects import PublishServices
from muster.control.deployment.publishing.etcd import EtcdSink
from muster.control.deployment.publishing.haproxy import HaproxySink
from muster.control.deployment.publishing.settings import TrafficSettings
from muster.control.deployment.publishing.sink import SinkLine
from muster.control.engine.effects import Performer
from muster.core.serving.traffic import LoadReport


class TrafficPublisher(Performer[PublishServices]):
    """Hands each set to every balancer that operators named. One that hangs delays no other: each
    has a thread of its own, which begins with the first set and always takes the newest. When the
    controller ends, what was published stays.

    Args:
        report: is told of the load that a balancer has counted; on its thread.
        in_charge: whether no other controller can have taken over; asked on the same threads.
    """

    kind = PublishServices

    def __init__(
        self,
        settings: TrafficSettings,
        report: Callable[[LoadReport], None],
        in_charge: Callable[[], bool] = lambda: True,
    ) -> None:
        self._lines: list[SinkLine] = []
        if settings.haproxy is not None:
            made = partial(HaproxySink, settings.haproxy, report)
            self._lines.append(SinkLine(made, HaproxySink.name, in_charge))
        if settings.etcd is not None:
            self._lines.append(SinkLine(partial(EtcdSink, settings.etcd), EtcdSink.name, in_charge))

    def complaints(self) -> dict[str, str]:
        """A complaint for operators about each balancer to which something was published, by
        its name; empty if all is well."""
        told = {line.name: line.complaint for line in self._lines}
        return {name: complaint for name, complaint in told.items() if complaint is not None}

    def perform(self, effects: Sequence[PublishServices]) -> None:
        if effects:
            newest = max(effects, key=lambda effect: effect.version)
            for line in self._lines:
                line.put(newest)

    def close(self) -> None:
        for line in self._lines:
            line.close()
