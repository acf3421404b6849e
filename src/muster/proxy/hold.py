"""Requests that wait while their service has no replica: bounded, in order, and not for ever."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from muster.proxy.answers import Refused
from muster.proxy.exchange import Exchange
from muster.proxy.limits import Limits
from muster.proxy.services import LiveService


class HeldRequests:
    """All requests that wait.

    Args:
        tell: is called when a service without a replica gets its first waiting request.
    """

    def __init__(self, limits: Limits, tell: Callable[[], None]) -> None:
        self.count = 0
        self._limits = limits
        self._tell = tell
        self._bytes = 0
        self._loop = asyncio.get_running_loop()

    def add(self, live: LiveService, exchange: Exchange) -> None:
        """
        Raises:
            Refused: the service's requests do not wait, or there is no room.
        """
        if live.gone or not live.service.holds:
            raise Refused(503, "the service has no replica at present", retry_s=1)
        if len(live.waiting) >= self._limits.held:
            self._make_room(live, exchange)
        if self.count >= self._limits.held_in_all:
            raise Refused(503, "too many requests wait for replicas", retry_s=5)
        exchange.released = False
        exchange.held_since_s = self._loop.time()
        live.waiting[exchange] = None
        self.count += 1
        self.grew(exchange, exchange.kept_bytes)
        if len(live.waiting) == 1:
            self._tell()

    def grew(self, exchange: Exchange, size: int) -> None:
        """Take note of more bytes of a request, if it waits."""
        live = exchange.live
        if live is None or exchange not in live.waiting:
            return
        self._bytes += size
        if self._bytes > self._limits.held_bytes:
            self._refuse(live, exchange, Refused(429, "what waits for replicas is too large", 5))

    def remove(self, exchange: Exchange) -> None:
        """Forget a request, if it waits."""
        live = exchange.live
        if live is not None and exchange in live.waiting:
            del live.waiting[exchange]
            self.count -= 1
            self._bytes -= exchange.kept_bytes

    def release(self, live: LiveService) -> None:
        """Hand the requests that wait to the service's replicas, some at a time."""
        if live.releasing or not live.waiting:
            return
        if live.gone:
            self.refuse_all(live, Refused(503, "the service has ended"))
        elif live.has_replicas:
            for _ in range(min(len(live.waiting), self._limits.released * len(live.open))):
                exchange = next(iter(live.waiting))
                self.remove(exchange)
                exchange.released = True
                exchange.dispatch()
            if live.waiting:
                live.releasing = True
                self._loop.call_later(self._limits.release_s, self._go_on, live)

    def refuse_all(self, live: LiveService, refused: Refused) -> None:
        for exchange in [*live.waiting]:
            self._refuse(live, exchange, refused)

    def look(self, live: LiveService, now_s: float) -> None:
        """Refuse the requests that have waited for too long."""
        while live.waiting:
            exchange = next(iter(live.waiting))
            if now_s - exchange.held_since_s <= self._limits.held_s:
                return
            why = f"the service had no replica for {self._limits.held_s:g} s"
            self._refuse(live, exchange, Refused(503, why, retry_s=10))

    def _go_on(self, live: LiveService) -> None:
        live.releasing = False
        self.release(live)

    def _make_room(self, live: LiveService, newcomer: Exchange) -> None:
        """Refuse the last request of the address that has the most.

        Raises:
            Refused: that is the newcomer's.
        """
        full = Refused(429, "too many requests wait for a replica of the service", retry_s=5)
        count = Counter(each.front.origin for each in live.waiting)
        origin, most = count.most_common(1)[0]
        if count[newcomer.front.origin] + 1 >= most:
            raise full
        last = next(each for each in reversed(live.waiting) if each.front.origin == origin)
        self._refuse(live, last, full)

    def _refuse(self, live: LiveService, exchange: Exchange, refused: Refused) -> None:
        live.refused += 1
        exchange.refuse(refused)
