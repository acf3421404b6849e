"""Turns of callers, in virtual time: who waits for whom, and for how long."""

import asyncio
import heapq
from collections.abc import Callable

import pytest

from muster.api.turns import (
    HEAVY_S,
    LONGEST_WAIT_S,
    MAX_WAITING_OF_ONE,
    OTHERS_S,
    UNDER_WAY_S,
    RequestTurn,
    Turns,
)
from muster.core.errors import Busy

ADA, BOB, DAN, EVE = (("default", name) for name in ("ada", "bob", "dan", "eve"))


class Clock:
    """A clock that is moved by hand, with alarms."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._alarms: list[tuple[float, int, Callable[[], None]]] = []
        self.turns = Turns(lambda: self.now_s, self._later)

    def _later(self, seconds: float, function: Callable[[], None]) -> None:
        heapq.heappush(self._alarms, (self.now_s + seconds, len(self._alarms), function))

    async def advance(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self._alarms and self._alarms[0][0] <= until_s:
            self.now_s, _, function = heapq.heappop(self._alarms)
            function()
        self.now_s = until_s
        await asyncio.sleep(0)

    async def spend(self, caller: tuple[str, str], cost_s: float) -> None:
        """A request that takes so long."""
        turn = await self.turns.begin(caller)
        turn.cost_s = cost_s
        self.now_s += cost_s
        self.turns.end(turn)

    async def asked(self, caller: tuple[str, str]) -> "asyncio.Task[RequestTurn]":
        """A request that begins now, or waits."""
        task = asyncio.create_task(self.turns.begin(caller))
        await asyncio.sleep(0)
        return task


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_caller_who_is_alone_never_waits(clock: Clock) -> None:
    for _ in range(20):
        await clock.spend(EVE, 1.0)
    assert (await clock.asked(EVE)).done()


async def test_caller_in_debt_waits_for_one_who_owes_nothing(clock: Clock) -> None:
    await clock.spend(EVE, 1.0)
    light = await clock.turns.begin(BOB)
    heavy = await clock.asked(EVE)
    assert not heavy.done()
    clock.turns.end(light)
    await asyncio.sleep(0)
    assert heavy.done()


async def test_requests_of_callers_in_debt_begin_one_by_one_each_after_a_pause(
    clock: Clock,
) -> None:
    await clock.spend(BOB, 0.001)
    await clock.spend(EVE, 0.5)
    first, second = await clock.asked(EVE), await clock.asked(EVE)
    assert (first.done(), second.done()) == (True, False)
    turn = first.result()
    turn.cost_s = 0.1
    clock.turns.end(turn)
    await clock.advance(0.09)
    assert not second.done()
    await clock.advance(0.02)
    assert second.done()


async def test_the_least_debt_comes_first(clock: Clock) -> None:
    await clock.spend(EVE, 2.0)
    await clock.spend(ADA, 1.0)
    light = await clock.turns.begin(BOB)
    eves, adas = await clock.asked(EVE), await clock.asked(ADA)
    clock.turns.end(light)
    await asyncio.sleep(0)
    assert (eves.done(), adas.done()) == (False, True)


async def test_nobody_waits_for_ever_for_callers_who_owe_nothing(clock: Clock) -> None:
    await clock.spend(EVE, 3.0)
    light = await clock.turns.begin(BOB)
    heavy = await clock.asked(EVE)
    waited_s = 0.0
    while not heavy.done() and waited_s < 2 * LONGEST_WAIT_S:
        clock.turns.end(light)
        light = await clock.turns.begin(BOB)
        await clock.advance(0.05)
        waited_s += 0.05
    assert heavy.done()


async def test_request_that_lasts_keeps_none_of_those_that_waited_beside_it(clock: Clock) -> None:
    """A body that arrives slowly kept the caller's next request waiting until it had arrived."""
    await clock.spend(EVE, 1.0)
    await clock.turns.begin(BOB)
    waiting = [await clock.asked(EVE) for _ in range(3)]
    for begun in (1, 2, 3):
        await clock.advance(UNDER_WAY_S)
        assert sum(each.done() for each in waiting) == begun


async def test_requests_that_went_are_passed_over_however_many_there_are(clock: Clock) -> None:
    for caller, cost_s in ((ADA, 4.0), (EVE, 4.0), (DAN, 5.0)):
        await clock.spend(caller, cost_s)
    light = await clock.turns.begin(BOB)
    gone = [await clock.asked(each) for each in (ADA, EVE) for _ in range(MAX_WAITING_OF_ONE)]
    last = await clock.asked(DAN)
    for each in gone:
        each.cancel()
    await asyncio.gather(*gone, return_exceptions=True)
    clock.turns.end(light)
    assert (await last).caller == DAN


async def test_debt_is_forgiven_with_time_and_others_who_left_do_not_count(clock: Clock) -> None:
    await clock.spend(BOB, 0.001)
    await clock.spend(EVE, 0.1)
    await clock.advance(OTHERS_S)
    light = await clock.turns.begin(BOB)
    assert (await clock.asked(EVE)).done(), "what it owed is forgiven"
    clock.turns.end(light)
    await clock.spend(EVE, 4.0)
    await clock.advance(OTHERS_S)
    assert (await clock.asked(EVE)).done(), "nobody else is there"


async def test_waiting_requests_of_one_caller_are_bounded_and_may_go(clock: Clock) -> None:
    await clock.spend(EVE, 5.0)
    light = await clock.turns.begin(BOB)
    waiting = [await clock.asked(EVE) for _ in range(MAX_WAITING_OF_ONE)]
    with pytest.raises(Busy, match="too many of your requests wait"):
        await clock.turns.begin(EVE)
    for each in waiting[:-1]:
        each.cancel()
    await asyncio.gather(*waiting[:-1], return_exceptions=True)
    clock.turns.end(light)
    await asyncio.sleep(0)
    assert waiting[-1].done(), "those that went are passed over"


def test_debt_for_which_a_caller_waits_is_more_than_a_usual_request_takes() -> None:
    assert HEAVY_S > 0.02
