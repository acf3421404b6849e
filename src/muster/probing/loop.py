"""The loop of the probing process: many probes at a time, in one thread.

It sleeps a moment between two looks at its connections, so that a look finds several that have gone
on: that takes less processor time than a wake for each.

It imports modules of the probing process only, which is to be small.
"""

import heapq
import json
import os
import select
import time
from collections import deque
from itertools import count

from muster.probing.attempts import Attempts, Outcome, ProbeAttempt
from muster.probing.names import Names
from muster.probing.targets import ProbedAddress, read_order

TICK_S = 0.01
"""The pause between two looks."""
MAX_UNDER_WAY = 512
"""Connections at a time, of probes and of readings of metrics."""
MAX_SLOW = MAX_UNDER_WAY // 2
"""How many of these may be to targets that did not answer in time before: the rest is for the
others."""
MAX_IN_ALL = 2 * MAX_UNDER_WAY
"""Connections at a time, with those that turn out to be slow while they are under way."""
TOLD_S = 1.0
"""Seconds between two reports of results that change nothing."""
NAME_S = 0.5
"""Seconds after which a target comes again whose host has no known address yet."""
IDLE_S = 60.0
"""Seconds without a target after which the process ends."""
WARNED_S = 10.0
MAX_READ = 1024 * 1024


class ProbeLoop:
    """Probes, until the orders end.

    Args:
        orders, results: descriptors from which lines with orders are read, and to which lines with
            results are written. A performer that does neither read nor write holds up no probe.
        at_once: the number of results in a row of one kind that are told at once; later ones are
            told once a second.
    """

    def __init__(self, orders: int, results: int, names: Names, at_once: int) -> None:
        self._at_once_until = at_once
        self._orders = orders
        self._results = results
        self._names = names
        self._epoll = select.epoll()
        self._attempts = Attempts(self._epoll, self._take)
        self._targets: dict[str, ProbedAddress] = {}
        self._due: list[tuple[float, int, ProbedAddress]] = []
        self._numbers = count()
        # Targets that wait for their turn, and whether it is to read their metrics.
        self._waiting: deque[tuple[ProbedAddress, bool]] = deque()
        self._waiting_slow: deque[tuple[ProbedAddress, bool]] = deque()
        self._at_once: dict[str, ProbedAddress] = {}
        self._others: dict[str, ProbedAddress] = {}
        self._told_s = self._used_s = self._now_s = time.monotonic()
        self._warning = ""
        self._warned_s = -WARNED_S
        self._unread = b""
        self._unwritten = b""
        self._has_ended = False

    def run(self) -> None:
        os.set_blocking(self._orders, False)
        os.set_blocking(self._results, False)
        self._epoll.register(self._orders, select.EPOLLIN)
        try:
            while not self._has_ended:
                self._look(self._pause_s())
                self._attempts.end_late(self._now_s)
                self._begin_due()
                self._tell()
                time.sleep(TICK_S)
        finally:
            self._attempts.close()
            self._epoll.close()

    def _pause_s(self) -> float:
        next_s = min(self._told_s + TOLD_S, self._attempts.first_until_s)
        if self._due:
            next_s = min(next_s, self._due[0][0])
        return max(0.0, next_s - time.monotonic())

    def _look(self, pause_s: float) -> None:
        events = self._epoll.poll(pause_s)
        before_s, self._now_s = self._now_s, time.monotonic()
        # Time in which this process could not run is no fault of those who had to answer in it.
        late_s = self._now_s - before_s - pause_s - TICK_S
        if late_s > TICK_S:
            self._attempts.put_off(late_s)
        for descriptor, mask in events:
            if descriptor == self._orders:
                self._obey()
            else:
                self._attempts.go_on(descriptor, mask, self._now_s)

    # -- orders and results --------------------------------------------------------------------

    def _obey(self) -> None:
        read = os.read(self._orders, MAX_READ)
        if not read:
            self._has_ended = True
        *lines, self._unread = (self._unread + read).split(b"\n")
        for line in lines:
            try:
                route, target = read_order(line)
            except ValueError as error:
                self._warning = f"an order is not understood: {error}"
                continue
            if (former := self._targets.pop(route, None)) is not None:
                former.is_gone = True
                self._at_once.pop(route, None)
                self._others.pop(route, None)
            if target is not None:
                self._targets[route] = target
                target.begin_at(self._now_s)
                self._put_off(target)
        if len(self._due) > 2 * len(self._targets) + 1000:
            self._due = [each for each in self._due if not each[2].is_gone]
            heapq.heapify(self._due)

    def _tell(self) -> None:
        """Write results as far as they are taken; what waits is told as it is then."""
        is_time = self._now_s >= self._told_s + TOLD_S
        if is_time:
            self._told_s = self._now_s
            self._attempts.end_gone()
            self._attempts.count_slow(self._now_s)
            self._end_if_idle()
        if self._unwritten:
            self._write()
        if self._unwritten or not (self._at_once or is_time):
            return
        told = [self._at_once, self._others] if is_time else [self._at_once]
        rows: list[object] = [each.result() for some in told for each in some.values()]
        for some in told:
            some.clear()
        if self._warning and self._warned_s + WARNED_S <= self._now_s:
            rows.append(self._warning)
            self._warning, self._warned_s = "", self._now_s
        self._unwritten = json.dumps(rows, separators=(",", ":")).encode() + b"\n"
        self._write()

    def _write(self) -> None:
        try:
            self._unwritten = self._unwritten[os.write(self._results, self._unwritten) :]
        except BlockingIOError:
            pass
        except OSError:  # nobody listens any more
            self._has_ended = True

    def _end_if_idle(self) -> None:
        if self._targets:
            self._used_s = self._now_s
        elif self._used_s + IDLE_S <= self._now_s:
            self._has_ended = True

    # -- probes --------------------------------------------------------------------------------

    def _begin_due(self) -> None:
        while self._due and self._due[0][0] <= self._now_s:
            self._queue(heapq.heappop(self._due)[2], False)
        while self._waiting and self._has_room():
            self._begin(*self._waiting.popleft())
        while self._waiting_slow and self._attempts.slow < MAX_SLOW and self._has_room():
            self._begin(*self._waiting_slow.popleft())

    def _has_room(self) -> bool:
        """Whether another connection may begin."""
        attempts = self._attempts
        counted = attempts.under_way - attempts.slow + min(attempts.slow, MAX_SLOW)
        return counted < MAX_UNDER_WAY and attempts.under_way < MAX_IN_ALL

    def _queue(self, target: ProbedAddress, reads: bool) -> None:
        """Have a target wait for its turn, which it does once at most, so that each has its own."""
        is_slow = target.is_slowly_read if reads else target.is_slow
        (self._waiting_slow if is_slow else self._waiting).append((target, reads))

    def _begin(self, target: ProbedAddress, reads: bool) -> None:
        if target.is_gone:
            return
        addresses = self._names.find(target.host, self._now_s)
        if addresses:
            # The loop looks a tick late for the connection, and again for the answer.
            within_s = target.timeout_s + 2 * TICK_S
            self._attempts.begin(target, reads, addresses, self._now_s, within_s)
        elif reads:
            target.is_read = False
        elif addresses is None:
            self._warning = "a host's name is not resolved"
            target.due_s = self._now_s + min(NAME_S, target.interval_s)
            self._put_off(target)
        else:
            self._complete(target, False, "there is no such host", reached=False)

    def _put_off(self, target: ProbedAddress) -> None:
        heapq.heappush(self._due, (target.due_s, next(self._numbers), target))

    def _take(self, attempt: ProbeAttempt, outcome: Outcome) -> None:
        """Take the outcome of an attempt."""
        target = attempt.target
        if target.is_gone:
            return
        if outcome.good is None:
            self._warning = f"probes are kept from beginning: {outcome.detail}"
        if attempt.reads:
            target.is_read, target.is_slowly_read = False, outcome.is_slow
            target.value = outcome.value if target.is_good else None
            target.lack = f"{target.metric}: {outcome.detail}" if outcome.value is None else ""
            self._others[target.route] = target
            return
        target.is_slow = outcome.is_slow
        if outcome.good is None:
            self._go_on(target)
        else:
            self._complete(target, outcome.good, outcome.detail, reached=outcome.reached)

    def _complete(self, target: ProbedAddress, good: bool, detail: str, *, reached: bool) -> None:
        target.complete(good, detail, self._now_s, reached=reached)
        is_told_at_once = target.streak <= self._at_once_until
        (self._at_once if is_told_at_once else self._others)[target.route] = target
        if good and target.may_be_read(self._now_s):
            target.is_read, target.read_s = True, self._now_s
            self._queue(target, True)
        self._go_on(target)

    def _go_on(self, target: ProbedAddress) -> None:
        target.go_on_at(self._now_s)
        self._put_off(target)
