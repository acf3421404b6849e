"""Probes that a hollow agent makes on its own machine, as the controller orders."""

from collections.abc import Callable
from dataclasses import dataclass

from muster.core.serving.probes import ProbeOrder, ProbeResult
from muster.wire.messages import ProbeOrders, ProbesSeen
from proving.hollow.timeline import Timeline

Answers = Callable[[str, int], bool | None]
"""Whether a route of a generation is well, when it is probed; None if nothing is found out."""


@dataclass(slots=True)
class _Probed:
    order: ProbeOrder
    good: bool = False
    streak: int = 0


class HollowRouteProbes:
    """The routes that are probed, each once in the shortest of their intervals.

    Args:
        answers: to probes.
        say: tells the controller.
    """

    def __init__(
        self, timeline: Timeline, answers: Answers, say: Callable[[ProbesSeen], None]
    ) -> None:
        self._timeline = timeline
        self._answers = answers
        self._say = say
        self._probed: dict[str, _Probed] = {}
        self._is_due = False

    @property
    def orders(self) -> dict[str, ProbeOrder]:
        """The orders that are followed, by their routes."""
        return {route: probed.order for route, probed in self._probed.items()}

    @property
    def routes(self) -> frozenset[str]:
        """The names of the routes that are probed."""
        return frozenset(self._probed)

    def obey(self, orders: ProbeOrders) -> None:
        for order in orders.orders:
            if order.target is None:
                self._probed.pop(order.route, None)
            else:
                self._probed[order.route] = _Probed(order)
        self._go_on()

    def forget(self) -> None:
        """The stream has ended."""
        self._probed.clear()

    def _go_on(self) -> None:
        targets = filter(None, (each.order.target for each in self._probed.values()))
        intervals = [target.interval_s for target in targets]
        if intervals and not self._is_due:
            self._is_due = True
            self._timeline.after(min(intervals), self._probe)

    def _probe(self) -> None:
        self._is_due = False
        told = []
        for route, probed in self._probed.items():
            good = self._answers(route, probed.order.generation)
            if good is None:
                continue
            probed.streak = probed.streak + 1 if good is probed.good else 1
            probed.good = good
            told.append(ProbeResult(route, probed.order.generation, good, probed.streak))
        if told:
            self._say(ProbesSeen(tuple(told)))
        self._go_on()
