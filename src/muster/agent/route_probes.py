"""Probes of replicas on this machine, which the controller orders where it does not reach them
itself (design: Deployments and routes)."""

import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from muster.agent.health_commands import HealthCommands, ScratchOf
from muster.core.serving.probes import MAX_OF_AGENT, ProbeOrder, ProbeResult
from muster.probing.prober import Prober
from muster.wire.messages import ProbeOrders, ProbesSeen

PAUSE_S = 0.2
"""Seconds between two messages with results, at least: of those of a route the last one counts."""
TOLD_AT_ONCE = 5
"""Results in a row of one kind that need not wait for the second in which all are told."""
LOOPBACK = "127.0.0.1"


class RouteProbes:
    """The replicas that are probed from here, and what is to be told of them.

    Args:
        news: is called, on a thread of the prober's, when there is something to be told.
        scratch_of: the scratch directory of a kernel, by its id and generation; None if there is
            none.

    Attributes:
        host: the address at which they are.
    """

    def __init__(
        self, news: Callable[[], None], scratch_of: ScratchOf = lambda kernel, generation: None
    ) -> None:
        self.host = LOOPBACK
        self._news = news
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[ProbeResult, float]] = {}  # and when it was completed
        self._told_s = -PAUSE_S
        self._ordered: dict[str, int] = {}  # generations
        self._prober = Prober(self._take, most=MAX_OF_AGENT, at_once=TOLD_AT_ONCE)
        self._commands = HealthCommands(self._take, scratch_of)

    def obey(self, orders: ProbeOrders) -> None:
        """Have routes be probed, or no longer."""
        for order in orders.orders:
            if order.target is None:
                self._ordered.pop(order.route, None)
            else:
                self._ordered[order.route] = order.generation
        self._commands.obey(orders.orders)
        self._prober.obey([self._of_port(order) for order in orders.orders])

    def _of_port(self, order: ProbeOrder) -> ProbeOrder:
        """The order to the prober, which probes no port for a command."""
        target = order.target
        if target is None or target.kernel:
            return replace(order, target=None)
        return replace(order, target=replace(target, host=self.host))

    def forget(self) -> None:
        """Have nothing be probed, and nothing told: the stream has ended, and the controller
        orders anew on the next one."""
        self._commands.forget()
        self._prober.obey([ProbeOrder(*each) for each in self._ordered.items()])
        self._ordered.clear()
        with self._lock:
            self._waiting.clear()

    def wait_s(self, now_s: float) -> float | None:
        """Seconds until there is something to be told; None while there is nothing.

        Args:
            now_s: of the monotonic clock.
        """
        return max(0.0, self._told_s + PAUSE_S - now_s) if self._waiting else None

    def take(self, now_s: float) -> ProbesSeen:
        """The message to be sent now."""
        self._told_s = now_s
        with self._lock:
            told, self._waiting = list(self._waiting.values()), {}
        return ProbesSeen(
            tuple(replace(each, age_s=max(0.0, now_s - at_s)) for each, at_s in told[:MAX_OF_AGENT])
        )

    def close(self) -> None:
        """End the prober and its process."""
        self._commands.close()
        self._prober.close()

    def _take(self, results: Sequence[ProbeResult]) -> None:
        now_s = time.monotonic()
        with self._lock:
            for each in results:
                self._waiting[each.route] = each, now_s - each.age_s
        self._news()


def own_address(host: str) -> str:
    """The address at which this machine reaches itself as ``host``. A machine behind a translation
    of addresses has not the one by which others know it, and is asked by loopback. May take as long
    as names take to be looked up.
    """
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return LOOPBACK
    for family, kind, _, _, address in found:
        with suppress(OSError), socket.socket(family, kind) as probe:
            probe.bind(address)
            return str(address[0])
    return LOOPBACK
