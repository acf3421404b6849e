"""Turns of callers: whoever keeps the event loop busy waits while others are served.

Each caller has a debt: the processor time that its last requests took, of which a part is forgiven
every second. Requests of callers with little debt begin at once. Those of a caller in debt begin
one after the other, once no request of a caller without debt is under way, the least debt first,
and each is followed by a pause as long as itself. Nobody waits while no other caller is there, or
for the rest of a request that lasts, such as one whose body arrives slowly.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from muster.core.errors import Busy

HEAVY_S = 0.03
"""Seconds of debt with which a caller's requests begin at once."""
FORGIVEN = 0.25
"""Seconds of debt that are forgiven in each second."""
MOST_DEBT_S = 5.0
OTHERS_S = 1.0
"""Seconds after its last request for which a caller counts as being there."""
UNDER_WAY_S = 0.25
"""Seconds for which others wait for a request: one that lasts longer is itself waiting."""
LONGEST_WAIT_S = 1.0
"""Seconds that a request waits for those of callers without debt."""
MAX_WAITING_OF_ONE = 512
MAX_CALLERS = 10_000

Caller = tuple[str, str]
"""A domain and a user; for requests without a token the empty text and an address."""

_CURRENT: ContextVar["RequestTurn | None"] = ContextVar("turn", default=None)


@dataclass(slots=True, eq=False)
class RequestTurn:
    """A request under way.

    Attributes:
        began_s: when it began.
        cost_s: processor seconds that it has taken so far, on the event loop and in threads.
    """

    caller: Caller
    began_s: float
    in_debt: bool
    cost_s: float = 0.0


@dataclass(slots=True, eq=False)
class _Account:
    """The debt of a caller as of ``at_s``, when it was last seen, and its requests that wait, each
    with the moment since when."""

    at_s: float
    debt_s: float = 0.0
    waiting: deque[tuple[float, "asyncio.Future[RequestTurn]"]] = field(default_factory=deque)

    def settle(self, now_s: float) -> None:
        self.debt_s = max(0.0, self.debt_s - FORGIVEN * (now_s - self.at_s))
        self.at_s = now_s


class Turns:
    """
    Args:
        now_s: a clock that only goes on.
        later: has a function called after so many seconds.
    """

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        self._now_s = now_s
        self._later = later
        self._accounts: dict[Caller, _Account] = {}  # the one that asked last is the last
        self._light: dict[RequestTurn, None] = {}  # under way, in the order of their begin
        self._heavy: RequestTurn | None = None
        self._rests_until_s = 0.0
        self._alarm_s = float("inf")

    async def begin(self, caller: Caller) -> RequestTurn:
        """The caller's turn, once it comes; ``end`` is to be called with it.

        Raises:
            Busy: too many of the caller's requests wait.
        """
        now_s = self._now_s()
        self._later = self._later or asyncio.get_running_loop().call_later
        account = self._account(caller, now_s)
        if account.debt_s <= HEAVY_S or not self._others_than(caller, now_s):
            turn = RequestTurn(caller, now_s, in_debt=False)
            self._light[turn] = None
            return turn
        if len(account.waiting) >= MAX_WAITING_OF_ONE:
            raise Busy("too many of your requests wait for each other: send fewer at a time")
        future: asyncio.Future[RequestTurn] = asyncio.get_running_loop().create_future()
        account.waiting.append((now_s, future))
        self._dispatch()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.end(future.result())
            raise

    def end(self, turn: RequestTurn) -> None:
        """Note that a request has ended, and let the next one begin."""
        now_s = self._now_s()
        account = self._account(turn.caller, now_s)
        account.debt_s = min(account.debt_s + turn.cost_s, MOST_DEBT_S)
        self._light.pop(turn, None)
        if turn is self._heavy:
            self._heavy = None
            self._rests_until_s = now_s + turn.cost_s
        self._dispatch()

    def _account(self, caller: Caller, now_s: float) -> _Account:
        account = self._accounts.pop(caller, None) or _Account(now_s)
        self._accounts[caller] = account
        account.settle(now_s)
        if len(self._accounts) > MAX_CALLERS:
            self._forget_oldest()
        return account

    def _forget_oldest(self) -> None:
        oldest = next(iter(self._accounts))
        if not self._accounts[oldest].waiting:
            del self._accounts[oldest]

    def _others_than(self, caller: Caller, now_s: float) -> bool:
        """Whether another caller was there a moment ago."""
        for other in reversed(self._accounts):
            if other != caller:
                return now_s - self._accounts[other].at_s < OTHERS_S
        return False

    def _dispatch(self) -> None:
        """Let the next request of a caller in debt begin, if it may. As long as further ones wait,
        an alarm is set for the next of them, because the one that began may last."""
        now_s = self._now_s()
        while waiting := [each for each in self._accounts.items() if each[1].waiting]:
            free_at_s = self._free_at_s(now_s, min(each.waiting[0][0] for _, each in waiting))
            if free_at_s > now_s:
                self._look_at(free_at_s, now_s)
                return
            caller, account = min(waiting, key=lambda each: each[1].debt_s)
            _, future = account.waiting.popleft()
            if not future.done():  # else it was cancelled
                self._heavy = RequestTurn(caller, now_s, in_debt=True)
                future.set_result(self._heavy)

    def _free_at_s(self, now_s: float, waits_since_s: float) -> float:
        """When a request of a caller in debt may begin, unless something ends before."""
        free_at_s = self._rests_until_s
        if self._heavy is not None:
            free_at_s = max(free_at_s, self._heavy.began_s + UNDER_WAY_S)
        newest = next(reversed(self._light), None)
        if newest is not None:
            until_s = min(newest.began_s + UNDER_WAY_S, waits_since_s + LONGEST_WAIT_S)
            free_at_s = max(free_at_s, until_s)
        return free_at_s

    def _look_at(self, at_s: float, now_s: float) -> None:
        if now_s < self._alarm_s <= at_s:
            return
        self._alarm_s = at_s
        assert self._later is not None, "a request has begun"
        self._later(at_s - now_s, self._alarm)

    def _alarm(self) -> None:
        self._alarm_s = float("inf")
        self._dispatch()


class TurnsAtOnce(Turns):
    """Turns that come at once: in virtual time no request keeps another one waiting."""

    async def begin(self, caller: Caller) -> RequestTurn:
        return RequestTurn(caller, 0.0, in_debt=False)

    def end(self, turn: RequestTurn) -> None:
        pass


class Metered:
    """An awaitable that does what another does, and notes in a turn the time that this takes."""

    def __init__(self, work: Awaitable[None], turn: RequestTurn) -> None:
        self._work = work
        self._turn = turn

    def __await__(self) -> Generator[Any, Any, None]:
        _CURRENT.set(self._turn)
        steps = self._work.__await__()
        value: Any = None
        error: BaseException | None = None
        while True:
            began_s = time.perf_counter()
            try:
                waited = steps.send(value) if error is None else steps.throw(error)
            except StopIteration:
                return
            finally:
                self._turn.cost_s += time.perf_counter() - began_s
            value = error = None
            try:
                value = yield waited
            except BaseException as raised:
                error = raised


def current_turn() -> RequestTurn | None:
    """The turn of the request that is served in this context."""
    return _CURRENT.get()


def charge(cost_s: float) -> None:
    """Note time that a thread has worked for the request under way, if there is one."""
    turn = _CURRENT.get()
    if turn is not None:
        turn.cost_s += cost_s
