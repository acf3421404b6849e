"""Errands in lines, one line for each pool, and the threads on which they are carried out.

An errand calls a provider, which blocks and may hang. Errands of one pool delay those of no other,
and a call that hangs costs its pool one thread: when it lasts too long it is given up, and its
thread, which nobody can end, is written off.
"""

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from muster.control.engine.inputs import Input
from muster.control.pool.effects import MAX_CALLS

log = logging.getLogger(__name__)

MAX_WAITING = 1_000
"""Errands of a pool that may wait; further ones are dropped, and come again from state."""
MAX_HANGING = 4
"""Calls of a pool that were given up and have not returned, from which on its errands are answered
without a call."""
MAX_THREADS = 128
"""Threads of all pools together; so many more may have been written off. Beyond that the pool that
was served longest ago comes next."""
IDLE_S = 60.0
"""Seconds without an errand after which a thread ends."""
FORGET_S = 600.0
"""Seconds without an errand after which a pool's line is dropped: pools are listed more often."""

Begin: TypeAlias = Callable[[], None]
"""Says that an errand calls its provider from now on, and raises ``Closed`` if it must not."""


class Closed(Exception):
    """No provider is called any more."""


@dataclass(frozen=True, slots=True, eq=False)
class Errand:
    """A call that an effect asks for.

    Args:
        key: what is done to what, as the log tells it. A later errand of a pool takes the place of
            one with the same key that still waits.
        generation: of the effect; the same key and generation are the same effect.
        about: the slice; errands about one slice are carried out one after the other. None where
            there is no such order.
        carry_out: calls the provider, once it has called its argument; the answer is the outcome to
            be reported, None if nothing is.
        unanswered: the outcome where there is no answer, for the reason that its argument says.
    """

    key: str
    generation: int
    about: str | None
    carry_out: Callable[[Begin], Input | None]
    unanswered: Callable[[str], Input | None]


@dataclass(slots=True, eq=False)
class _Call:
    """An errand under way."""

    errand: Errand
    line: "_Line"
    until_s: float = 0.0  # when it is given up, once it has begun
    hangs: bool = False  # it was given up


@dataclass(slots=True, eq=False)
class _Line:
    """The errands of a pool."""

    pool: str
    waiting: dict[str, Errand] = field(default_factory=dict)
    calls: set[_Call] = field(default_factory=set)
    used_s: float = 0.0
    overflows: bool = False  # the last errand did not fit

    @property
    def hanging(self) -> int:
        return sum(call.hangs for call in self.calls)

    def knows(self, errand: Errand) -> bool:
        """Whether the same errand waits or is under way."""
        known = [call.errand for call in self.calls if not call.hangs]
        waiting = self.waiting.get(errand.key)
        if waiting is not None:
            known.append(waiting)
        return any(
            each.key == errand.key and each.generation == errand.generation for each in known
        )

    def put(self, errand: Errand) -> bool:
        """Have an errand wait, in the place of a former one of its key; whether there is room."""
        fits = errand.key in self.waiting or len(self.waiting) < MAX_WAITING
        if fits:
            self.waiting[errand.key] = errand
        elif not self.overflows:
            log.warning("%s has to come again, and others: too many wait", errand.key)
        self.overflows = not fits
        return fits

    def take(self) -> _Call | None:
        """Begin with the first errand that may be carried out now."""
        if len(self.calls) - self.hanging >= MAX_CALLS:
            return None
        busy = {call.errand.about for call in self.calls} - {None}
        for key, errand in self.waiting.items():
            if errand.about not in busy:
                del self.waiting[key]
                call = _Call(errand, self)
                self.calls.add(call)
                return call
        return None


class Lines:
    """The lines of all pools, and their threads, which begin with the first errand.

    Args:
        report: takes outcomes, from any thread.
        forget: is told of a pool that had no errand for long.
        call_s: how long a call may last.
    """

    def __init__(
        self, report: Callable[[Input], None], forget: Callable[[str], None], call_s: float
    ) -> None:
        self._report = report
        self._forget = forget
        self._call_s = call_s
        self._lock = threading.Lock()
        self._lines: OrderedDict[str, _Line] = OrderedDict()  # that served longest ago comes first
        self._watched: OrderedDict[_Call, None] = OrderedDict()  # in the order of their ends
        self._watcher: threading.Thread | None = None
        self._has_begun = threading.Condition(self._lock)  # the watcher waits for this
        self._threads = 0  # without those that were written off
        self._written_off = 0
        self._idle = 0
        self._handed: deque[_Call] = deque()  # to threads that are idle: no more than there are
        self._is_handed = threading.Condition(self._lock)
        self._closed = False

    def add(self, pool: str, errand: Errand) -> None:
        """Take an errand, unless it is known already, and carry it out as soon as may be. The call
        neither waits nor raises."""
        with self._lock:
            if self._closed:
                return
            line = self._lines.setdefault(pool, _Line(pool))
            line.used_s = time.monotonic()
            if line.knows(errand):
                return
            hanging = line.hanging
            if hanging < MAX_HANGING:
                if line.put(errand):
                    self._staff()
                return
        self._tell(errand.unanswered(_hang(hanging)))

    def close(self) -> None:
        """Have all threads end that are not within a call, and the others after it. Nothing is
        reported any more."""
        with self._lock:
            self._closed = True
            self._is_handed.notify_all()
            self._has_begun.notify_all()

    # -- threads: with the lock held -----------------------------------------------------------

    def _staff(self) -> None:
        """Have threads begin with all errands that may be carried out now."""
        while self._idle > len(self._handed) or self._has_room():
            if (call := self._pick()) is None:
                return
            if self._idle > len(self._handed):
                self._handed.append(call)
                self._is_handed.notify()
            elif not self._start(call):
                return

    def _has_room(self) -> bool:
        total = self._threads + self._written_off
        return self._threads < MAX_THREADS and total < 2 * MAX_THREADS

    def _pick(self) -> _Call | None:
        if self._closed:
            return None
        for pool, line in self._lines.items():
            if line.waiting and (call := line.take()) is not None:
                self._lines.move_to_end(pool)
                return call
        return None

    def _start(self, call: _Call) -> bool:
        thread = threading.Thread(
            target=self._work, args=(call,), name="calls of providers", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the machine has no thread left
            log.warning("%s has to wait: %s", call.errand.key, error)
            call.line.calls.discard(call)
            return False
        self._threads += 1
        return True

    # -- on the threads ------------------------------------------------------------------------

    def _work(self, first: _Call) -> None:
        call: _Call | None = first
        while call is not None:
            self._run(call)
            call = self._after(call)

    def _run(self, call: _Call) -> None:
        outcome: Input | None = None
        try:
            outcome = call.errand.carry_out(partial(self._begin, call))
        except Closed:
            pass
        except Exception as error:
            if not self._closed:
                told = f"{type(error).__name__}: {error}".partition("\n")[0][:300]
                log.error("%s failed; it comes again: %s", call.errand.key, told)
        with self._lock:
            self._watched.pop(call, None)  # from here on it is not given up
        if not call.hangs:
            self._tell(outcome)

    def _after(self, call: _Call) -> _Call | None:
        """End a call; the answer is the next one for its thread, None if the thread is to end."""
        with self._lock:
            call.line.calls.discard(call)
            if call.hangs:
                self._written_off -= 1
                self._staff()  # the slice is free now
                return None
            following = self._pick()
            self._staff()
            if following is None:
                following = self._idly()
            if following is None:
                self._threads -= 1
            return following

    def _idly(self) -> _Call | None:
        """Wait for a call to be handed over."""
        self._idle += 1
        while not self._handed and not self._closed and self._is_handed.wait(IDLE_S):
            pass
        self._idle -= 1
        return self._handed.popleft() if self._handed and not self._closed else None

    def _begin(self, call: _Call) -> None:
        with self._lock:
            if self._closed:
                raise Closed
            call.until_s = time.monotonic() + self._call_s
            self._watched[call] = None
            if self._watcher is None:
                self._watcher = self._start_watcher()
            elif len(self._watched) == 1:
                self._has_begun.notify()

    def _tell(self, outcome: Input | None) -> None:
        if outcome is None or self._closed:
            return
        try:
            self._report(outcome)
        except Exception:
            log.exception("an outcome is lost; its effect comes again")

    # -- the watcher ---------------------------------------------------------------------------

    def _start_watcher(self) -> threading.Thread | None:
        thread = threading.Thread(target=self._watch, name="time of providers", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            log.warning("nobody looks at the time of providers' calls: %s", error)
            return None
        return thread

    def _watch(self) -> None:
        """Give up calls that last too long, until all is closed."""
        while not self._closed:
            with self._lock:
                given_up = self._give_up(time.monotonic())
                forgotten = self._drop_lines(time.monotonic())
                if not given_up and not forgotten and not self._closed:
                    self._has_begun.wait(self._pause_s(time.monotonic()))
            for errand, told in given_up:
                self._tell(errand.unanswered(told))
            for pool in forgotten:
                self._forget(pool)

    def _pause_s(self, now_s: float) -> float:
        first = next(iter(self._watched), None)
        return IDLE_S if first is None else max(0.0, min(first.until_s - now_s, IDLE_S))

    def _give_up(self, now_s: float) -> list[tuple[Errand, str]]:
        """Give up calls whose time is over; the answer is what remains unanswered, and why."""
        unanswered: list[tuple[Errand, str]] = []
        while (call := next(iter(self._watched), None)) is not None and call.until_s <= now_s:
            del self._watched[call]
            call.hangs = True
            self._threads -= 1
            self._written_off += 1
            unanswered.append((call.errand, f"no answer within {self._call_s:g} s"))
            line = call.line
            if (hanging := line.hanging) >= MAX_HANGING:
                unanswered += [(errand, _hang(hanging)) for errand in line.waiting.values()]
                line.waiting.clear()
        if unanswered:
            self._staff()
        return unanswered

    def _drop_lines(self, now_s: float) -> list[str]:
        dropped = [
            pool
            for pool, line in self._lines.items()
            if not line.waiting and not line.calls and line.used_s + FORGET_S <= now_s
        ]
        for pool in dropped:
            del self._lines[pool]
        return dropped


def _hang(calls: int) -> str:
    return f"{calls} calls hang"
