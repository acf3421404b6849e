"""A watch over the ports of replicas on this machine, as the controller orders (design: Deployments
and routes).

A look reads the sockets that listen, of all the machine, four times a second. Processes are looked
at only where the sockets of a port have changed.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from muster.agent.listening import ListeningSocket, Place, listening_on, place_of, places_of
from muster.agent.supervisor.process_tree import user_of
from muster.core.serving.port_holders import PortHolder, PortOrder, PortOrders, PortSeen, PortsSeen
from muster.core.serving.probes import MAX_OF_AGENT
from muster.wire.messages import KernelKey

log = logging.getLogger(__name__)

LOOK_S = 0.25
"""Seconds between two looks, at least."""
REST = 10
"""So many times as long as a look took is rested after it: a user may have any number of sockets
listen."""
_ROOT = 0


@dataclass(slots=True)
class _Watched:
    """A port that is looked at.

    Args:
        user, place: of the kernel's main process, once that is known.
        sockets: that listened at the last look; None before.
    """

    order: PortOrder
    user: int | None = None
    place: Place = ()
    sockets: frozenset[ListeningSocket] | None = None
    holder: PortHolder | None = None


class PortWatch:
    """The ports that are looked at, and what is to be told of them.

    Args:
        main_process: the main process of a kernel; None while it has none.
        news: is called when there is something to be told.
    """

    def __init__(
        self, main_process: Callable[[KernelKey], int | None], news: Callable[[], None]
    ) -> None:
        self._main_process = main_process
        self._news = news
        self._watched: dict[str, _Watched] = {}
        self._told: dict[str, PortSeen] = {}

    def obey(self, orders: PortOrders) -> None:
        """Have ports be looked at, or no longer; those of an agent are ``MAX_OF_AGENT`` at most."""
        for order in orders.orders:
            self._watched.pop(order.route, None)
            self._told.pop(order.route, None)
            if order.port is None:
                continue
            if len(self._watched) < MAX_OF_AGENT:
                self._watched[order.route] = _Watched(order)
            else:
                log.error("the port of %s is not looked at: too many are", order.route)

    def forget(self) -> None:
        """Have nothing be looked at, and nothing told: the stream has ended."""
        self._watched.clear()
        self._told.clear()

    @property
    def has_news(self) -> bool:
        """Whether there is something to be told."""
        return bool(self._told)

    def take(self) -> PortsSeen:
        """The message to be sent now."""
        told, self._told = tuple(self._told.values()), {}
        return PortsSeen(told)

    async def run(self) -> None:
        """Look again and again; does not return."""
        while True:
            began_s = time.monotonic()
            if self._watched:
                watched = list(self._watched.values())
                try:
                    seen = await asyncio.to_thread(self._look, watched)
                except OSError as error:
                    log.warning("it cannot be seen who listens on ports: %s", error)
                    seen = []
                self._take_note(seen)
            await asyncio.sleep(max(LOOK_S, REST * (time.monotonic() - began_s)))

    def _take_note(self, seen: list[_Watched]) -> None:
        for each in seen:
            order = each.order
            if self._watched.get(order.route) is not each or each.holder is None:
                continue  # it was ordered otherwise meanwhile
            told = PortSeen(order.route, order.kernel, order.generation, each.holder)
            self._told[order.route] = told
        if self._told:
            self._news()

    def _look(self, watched: list[_Watched]) -> list[_Watched]:
        """Look once; the answer is those of which something new is known. On a thread.

        Raises:
            OSError: the machine does not tell which sockets listen.
        """
        listening = listening_on({each.order.port for each in watched if each.order.port})
        changed = []
        for each in watched:
            sockets = listening.get(each.order.port or 0, frozenset())
            if sockets != each.sockets and self._is_known(each):
                each.sockets = sockets
                changed.append(each)
        looked_at = {
            socket
            for each in changed
            for socket in each.sockets or ()
            if socket.uid in (each.user, _ROOT)
        }
        places = places_of(looked_at) if looked_at else {}
        new = []
        for each in changed:
            holder = _holder(each, places)
            if holder is not each.holder:
                each.holder = holder
                new.append(each)
        return new

    def _is_known(self, watched: _Watched) -> bool:
        """Whether it is known as whom, and where, the kernel's processes run."""
        if watched.user is None:
            pid = self._main_process((watched.order.kernel, watched.order.generation))
            if pid is not None:
                with suppress(OSError):
                    watched.place = place_of(pid)
                    watched.user = user_of(pid)
        return watched.user is not None


def _holder(watched: _Watched, places: Mapping[ListeningSocket, set[Place]]) -> PortHolder:
    """The holder of a port: the worst of all that do, whichever addresses they listen at."""
    assert watched.sockets is not None, "its sockets were looked at"
    if not watched.sockets:
        return PortHolder.NOBODY
    found = {_holder_of(watched, each, places.get(each, set())) for each in watched.sockets}
    for holder in (PortHolder.OTHER_ACCOUNT, PortHolder.OTHER_KERNEL):
        if holder in found:
            order = watched.order
            uids = sorted({each.uid for each in watched.sockets})
            log.warning(
                "%s listens on port %s of %s (kernel %s, uid %s): sockets of uids %s",
                *(holder, order.port, order.route, order.kernel, watched.user, uids),
            )
            return holder
    return PortHolder.REPLICA


def _holder_of(watched: _Watched, socket: ListeningSocket, places: set[Place]) -> PortHolder:
    """The holder of a socket. A program of the kernel's account, or of root, that is in no kernel
    counts as the replica's: a container whose network is the machine's, or its helper, is such a
    one."""
    if socket.uid not in (watched.user, _ROOT):
        return PortHolder.OTHER_ACCOUNT
    others = places - {watched.place, ()}
    if others and watched.place not in places:
        is_same = socket.uid == watched.user
        return PortHolder.OTHER_KERNEL if is_same else PortHolder.OTHER_ACCOUNT
    return PortHolder.REPLICA
