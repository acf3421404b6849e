"""Attempts: connections to targets that are under way, for probes and for readings of metrics.

Only the addresses are connected to that are named: no redirection is followed, and no proxy asked.
The sockets are used without asyncio, which takes twice the processor time for a connection.

It imports modules of the probing process only, which is to be small.
"""

import errno
import re
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from muster.probing.answers import (
    MAX_BODY,
    MAX_HEAD,
    NotUnderstood,
    lines_of,
    metric_sum,
    read_body,
    read_head,
)
from muster.probing.names import Address
from muster.probing.targets import ProbedAddress

SLOW_S = 1.0
"""Seconds after which an attempt counts as one to a slow target, whatever the last one was."""
PARTING_S = 0.2
"""Seconds for which a connection stays open after the answer's head, for the server to end it: a
server whose connection goes while it writes a body may tell of an error in its log each time."""
MAX_PARTING = 512
MAX_LEFT_UNREAD = 64 * 1024
"""Bytes that are taken while parting: a server with more to say is cut off."""

_TO_EACH_CHANGE = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
_TO_READ = ~select.EPOLLOUT
_GOES_ON = frozenset({0, errno.EINPROGRESS})
_OWN = frozenset(
    {
        *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL),
        *(errno.ENETUNREACH, errno.ENETDOWN, errno.EAFNOSUPPORT, errno.EPERM, errno.EACCES),
    }
)
"""Errors that tell of this machine, and nothing of the target."""
_NO_WAY = "there is no way to the host"
_WORDS = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "the connection was broken off",
    errno.EHOSTUNREACH: _NO_WAY,
    errno.EHOSTDOWN: _NO_WAY,
    errno.ETIMEDOUT: "not connected in time",
}
_UNREACHED = frozenset({errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT})
"""Errors of a connection to which the target's machine had nothing to say."""
_RESET = b"\1\0\0\0\0\0\0\0"
"""``SO_LINGER`` of 0 s: closing leaves nothing behind that would have to time out."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of an attempt.

    Args:
        good: None if it was kept from its end by this machine's own fault, as ``detail`` says.
        detail: what was found, in one line without any words of the target's.
        value: of the metric, where that was read.
        is_slow: whether the time was over.
        reached: whether the target's machine was.
    """

    good: bool | None
    detail: str
    value: float | None = None
    is_slow: bool = False
    reached: bool = True


@dataclass(slots=True, eq=False)
class ProbeAttempt:
    """A connection.

    Args:
        reads: whether the metric is to be read; otherwise it is a probe.
        addresses: of the host.
        until_s: when its time is over.
        is_slow: whether the target's last one was, or it has taken long itself.
        slow_at_s: when it has.

    Attributes:
        addresses_left: addresses that have not refused yet.
        unsent: what is left of the request; None once it was sent.
        is_parting: whether the outcome was told.
    """

    target: ProbedAddress
    reads: bool
    addresses: tuple[Address, ...]
    until_s: float
    is_slow: bool
    slow_at_s: float
    addresses_left: int = 0
    unsent: bytes | None = None
    received: bytes = b""
    is_parting: bool = False
    connection: socket.socket | None = None


class Attempts:
    """The attempts that are under way.

    Args:
        epoll: where their descriptors are registered.
        ended: takes the outcome of each.

    Attributes:
        under_way: how many have no outcome yet.
        slow: how many of them are to targets whose last one was slow, or take long themselves.
        first_until_s: a time before which no attempt's time is over.
    """

    def __init__(self, epoll: select.epoll, ended: Callable[[ProbeAttempt, Outcome], None]) -> None:
        self._epoll = epoll
        self._ended = ended
        self._of: dict[int, ProbeAttempt] = {}
        self._parting = 0
        self.under_way = 0
        self.slow = 0
        self.first_until_s = float("inf")

    def begin(
        self,
        target: ProbedAddress,
        reads: bool,
        addresses: tuple[Address, ...],
        now_s: float,
        within_s: float,
    ) -> None:
        """Begin to connect to one of the host's addresses."""
        is_slow = target.is_slowly_read if reads else target.is_slow
        until_s, slow_at_s = now_s + within_s, now_s + SLOW_S
        attempt = ProbeAttempt(
            target, reads, addresses, until_s, is_slow, slow_at_s, len(addresses)
        )
        self.under_way += 1
        self.slow += is_slow
        self.first_until_s = min(self.first_until_s, until_s)
        self._connect(attempt)

    def go_on(self, descriptor: int, mask: int, now_s: float) -> None:
        """Go on with an attempt whose connection has changed."""
        attempt = self._of.get(descriptor)
        if attempt is None:
            return
        try:
            if attempt.is_parting:
                self._part(attempt)
            elif not (attempt.reads or attempt.target.request):
                self._look(attempt)
            else:
                if attempt.unsent is not None:
                    _send(attempt)
                if mask & _TO_READ:
                    self._receive(attempt, mask, now_s)
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(attempt, error.errno or 0)
        except NotUnderstood as error:
            self._end(attempt, Outcome(False, f"the answer {error}"))

    def end_late(self, now_s: float) -> None:
        """End attempts whose time is over."""
        if now_s < self.first_until_s:
            return
        late = [each for each in self._of.values() if each.until_s <= now_s]
        for attempt in late:
            if attempt.is_parting:
                self._close(attempt)
                continue
            target = attempt.target
            target.turn += attempt.unsent is not None  # an address that is dead is not tried again
            what = "no answer" if attempt.unsent is None else "not connected"
            detail = f"{what} within {target.timeout_s:g} s"
            reached = attempt.unsent is None
            self._end(attempt, Outcome(False, detail, is_slow=True, reached=reached))
        untils = (each.until_s for each in self._of.values())
        self.first_until_s = min(untils, default=float("inf"))

    def end_gone(self) -> None:
        """End attempts of which nobody awaits the outcome any more."""
        for attempt in [each for each in self._of.values() if each.target.is_gone]:
            if not attempt.is_parting:
                self._count(attempt)
            self._close(attempt)

    def count_slow(self, now_s: float) -> None:
        """Count those as slow that have taken long by now."""
        for attempt in self._of.values():
            if attempt.slow_at_s <= now_s and not (attempt.is_slow or attempt.is_parting):
                attempt.is_slow = True
                self.slow += 1

    def put_off(self, late_s: float) -> None:
        """Give all attempts so much more time, for that in which this process could not run."""
        for attempt in self._of.values():
            attempt.until_s += late_s
            attempt.slow_at_s += late_s

    def close(self) -> None:
        for attempt in list(self._of.values()):
            self._close(attempt)

    # -- steps of an attempt -------------------------------------------------------------------

    def _connect(self, attempt: ProbeAttempt) -> None:
        target = attempt.target
        family, address = attempt.addresses[target.turn % len(attempt.addresses)]
        attempt.unsent = target.metric_request if attempt.reads else target.request
        try:
            # Its type says that it does not block, which is cheaper than to say so afterwards.
            attempt.connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            code = attempt.connection.connect_ex((address[0], target.port, *address[2:]))
            if code in _GOES_ON:
                descriptor = attempt.connection.fileno()
                self._of[descriptor] = attempt
                self._epoll.register(descriptor, _TO_EACH_CHANGE)
                return
        except OSError as error:
            code = error.errno or 0
        self._fail(attempt, code)

    def _fail(self, attempt: ProbeAttempt, code: int) -> None:
        """End an attempt that met with an error, unless the host has another address."""
        if attempt.is_parting:
            self._close(attempt)
            return
        attempt.addresses_left -= 1
        if attempt.unsent is not None:
            attempt.target.turn += 1
            if attempt.addresses_left > 0:
                self._close(attempt)
                self._connect(attempt)
                return
        detail = _WORDS.get(code) or errno.errorcode.get(code, "the connection failed")
        reached = attempt.unsent is None or code not in _UNREACHED
        self._end(attempt, Outcome(None if code in _OWN else False, detail, reached=reached))

    def _look(self, attempt: ProbeAttempt) -> None:
        """End a probe that is a connection alone."""
        connection = _of(attempt)
        if code := connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._fail(attempt, code)
        elif connection.getsockname() == connection.getpeername():
            # To a port of this machine on which nobody listens, the kernel may connect a socket
            # from that very port: with itself.
            self._fail(attempt, errno.ECONNREFUSED)
        else:
            attempt.unsent = None
            self._close(attempt, abruptly=False)
            self._count(attempt)
            self._ended(attempt, Outcome(True, "connected"))

    def _receive(self, attempt: ProbeAttempt, mask: int, now_s: float) -> None:
        limit = MAX_HEAD + 2 * MAX_BODY if attempt.reads else MAX_HEAD
        server_ended = bool(mask & select.EPOLLRDHUP)
        outcome = None
        while outcome is None:
            room = min(limit - len(attempt.received), 64 * 1024)
            data = _of(attempt).recv(room)
            is_all = len(data) < room
            attempt.received = attempt.received + data if attempt.received else data
            outcome = _judged(attempt, ended=not data)
            if outcome is None and is_all and not server_ended:
                return  # there will be another change
        if is_all and (server_ended or not data):
            self._end(attempt, outcome, abruptly=False)
        elif self._parting >= MAX_PARTING or attempt.reads:
            self._end(attempt, outcome)
        else:
            self._count(attempt)
            self._parting += 1
            attempt.is_parting, attempt.received = True, b""
            attempt.until_s = now_s + PARTING_S
            self.first_until_s = min(self.first_until_s, attempt.until_s)
            self._ended(attempt, outcome)
            if not is_all:
                self._part(attempt)

    def _part(self, attempt: ProbeAttempt) -> None:
        """Take what is left of an answer, up to a limit, and nobody looks at it."""
        data = _of(attempt).recv(MAX_LEFT_UNREAD)
        if len(data) == MAX_LEFT_UNREAD:
            self._close(attempt)
        elif not data:
            self._close(attempt, abruptly=False)

    def _end(self, attempt: ProbeAttempt, outcome: Outcome, *, abruptly: bool = True) -> None:
        self._close(attempt, abruptly=abruptly)
        self._count(attempt)
        self._ended(attempt, outcome)

    def _count(self, attempt: ProbeAttempt) -> None:
        """Count an attempt no more, because it has its outcome."""
        self.under_way -= 1
        self.slow -= attempt.is_slow

    def _close(self, attempt: ProbeAttempt, *, abruptly: bool = True) -> None:
        connection, attempt.connection = attempt.connection, None
        if connection is None:
            return
        if self._of.pop(connection.fileno(), None) is not None:
            self._parting -= attempt.is_parting
        if abruptly:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.close()


def _of(attempt: ProbeAttempt) -> socket.socket:
    assert attempt.connection is not None
    return attempt.connection


def _send(attempt: ProbeAttempt) -> None:
    """Send what can be sent of the request."""
    assert attempt.unsent is not None
    try:
        attempt.unsent = attempt.unsent[_of(attempt).send(attempt.unsent) :] or None
    except (BrokenPipeError, ConnectionResetError):
        attempt.unsent = None  # the server wishes to read no more, and may have answered


def _judged(attempt: ProbeAttempt, *, ended: bool) -> Outcome | None:
    """The outcome as far as it can be told; None if more has to be read.

    Raises:
        NotUnderstood: it is no answer.
    """
    head = read_head(attempt.received)
    if head is None:
        return Outcome(False, "closed without an answer") if ended else None
    target, detail = attempt.target, f"HTTP {head.status}"
    if not attempt.reads:
        return Outcome(any(first <= head.status <= last for first, last in target.good), detail)
    if head.status != 200:
        return Outcome(False, detail)
    body = read_body(attempt.received, head, ended=ended)
    if body is None:
        return None
    value = metric_sum(body, _lines_of(target.metric))
    return Outcome(value is not None, "" if value is not None else "no such number", value)


@lru_cache(maxsize=1000)
def _lines_of(metric: str) -> re.Pattern[bytes]:
    return lines_of(metric)
