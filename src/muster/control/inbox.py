"""Inputs that wait for a wake: requests of people, messages of agents, outcomes of effects."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar, cast

from sqlalchemy.exc import OperationalError, SQLAlchemyError

from muster.control.engine.coordinator import MAX_CHANGES, MAX_RECORDS
from muster.control.engine.defects import Undone
from muster.control.engine.effects import Performer
from muster.control.engine.inputs import Input
from muster.control.engine.module import Parts
from muster.control.engine.wake_share import WakeShare
from muster.control.engine.work import Work
from muster.core.errors import Busy, MusterError
from muster.core.owner import Owner
from muster.store.database.outage import cause_of
from muster.store.store import CommitFailed

log = logging.getLogger(__name__)

T = TypeVar("T")
_User = tuple[str, str]
"""A domain, and a user of it."""

MAX_INPUTS = 100_000
"""Inputs that may wait for the next wake (design: Everything is bounded)."""
INPUTS_A_WAKE = 2_000
FEW_REQUESTS = 20
"""Requests that have a wake of their own where agents tell much meanwhile: each is answered soon,
and the wake does little. Where there are more, what they ask for is done in larger wakes."""
FEW_TOLD = 10
"""Reports of agents that a wake takes beside so few requests."""
LATER_PART = 10
"""One of so many inputs of a wake may be of the later one of its two queues, however long the first
one is."""
MAX_TOLD = 5_000
"""Reports, and kernels told of in Hellos, that a wake looks at before further inputs wait for the
next wake: reports that are repeated change nothing, but to find that out takes 3 µs for each."""
LARGE = 1_000
"""Rows above which an input is large: it delays the other inputs of its wake by 5 ms or more."""
LARGE_AGAIN_S = 10.0
"""Seconds for which a sender of a large input is expected to send further large inputs."""


class NotStored(MusterError):
    """A change could not be stored (the disk is full, say); no part of it happened."""

    @property
    def in_short(self) -> str:
        """The sentence for people who are not admins: without the cause, which may name machines
        and accounts behind the controller."""
        failed, has_cause, _ = str(self).partition(": ")
        return f"{failed}; `muster doctor` tells an admin why" if has_cause else failed


@dataclass(slots=True, eq=False)
class RequestInput(Input, Generic[T]):
    """A request; its caller gets the answer once the request is committed."""

    action: Callable[[Work, Parts], T]
    answer: Callable[[T | None, Exception | None], None]
    owner: Owner | None = None

    is_kept = False

    def take(self, work: Work, parts: Parts) -> None:
        before = work.unit.size
        try:
            work.emit(Reply(self, self.action(work, parts), None))
        except MusterError as refusal:
            if work.unit.size != before:
                raise  # a part of what is refused was done
            work.emit(Reply(self, None, refusal))

    def refuse(self, error: Exception) -> None:
        self.answer(None, error)


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """The effect of a request: its caller gets the result, or the refusal."""

    to: RequestInput[T]
    result: T | None
    refusal: Exception | None

    def tell(self) -> None:
        self.to.answer(self.result, self.refusal)


class Answers(Performer[Reply[object]]):
    kind = Reply

    def perform(self, effects: Sequence[Reply[object]]) -> None:
        for each in effects:
            try:
                each.tell()
            except Exception:  # the others' callers wait too
                log.exception("a caller could not be told what became of its request")


class Inbox:
    """Inputs in the order in which they came, requests before all others; where there is much of
    both, they have wakes in turn. Inputs of users who send large ones are taken one per wake, from
    these users in turn; inputs of all others are taken in between. Inputs of undone wakes are taken
    first, in the batches in which they were given back.

    Args:
        hint: called whenever something came in.
        hint_soon: called instead for an input that can wait for a moment; ``hint`` unless given.
    """

    def __init__(
        self,
        hint: Callable[[], None] = lambda: None,
        hint_soon: Callable[[], None] | None = None,
    ) -> None:
        self._hint = hint
        self._hint_soon = hint_soon or hint
        self._requests: deque[Input] = deque()
        self._fresh: deque[Input] = deque()
        self.agents_are_next = False
        """Whether the next wake takes what agents tell before requests."""
        self._took_requests = False  # this wake, before anything else
        self._slow: dict[_User, deque[Input]] = {}  # of large senders, the next user first
        self._slow_is_next = False
        self._senders: dict[_User, float] = {}  # large ones, until when
        self._again: deque[list[Input]] = deque()

    def __bool__(self) -> bool:
        return bool(self._requests or self._fresh or self._slow or self._again)

    @property
    def is_taking_again(self) -> bool:
        """Whether inputs of undone wakes wait."""
        return bool(self._again)

    def waiting(self) -> Iterator[Input]:
        """All inputs that no wake has taken yet."""
        queues = (self._requests, self._fresh, *self._slow.values())
        return chain(chain.from_iterable(self._again), *queues)

    def put(self, item: Input) -> None:
        """
        Raises:
            Busy: too much waits already.
        """
        waiting = len(self._requests) + len(self._fresh)
        if waiting + sum(map(len, self._slow.values())) >= MAX_INPUTS:
            raise Busy("the controller has more to do than it can take; try again later")
        self._queue_of(item).append(item)
        if item.can_wait:
            self._hint_soon()
        else:
            self._hint()

    def _queue_of(self, item: Input) -> deque[Input]:
        """The queue in which the input waits. A user's inputs stay in order, so a user with inputs
        in the slow queue gets further inputs into that queue."""
        owner = item.owner
        if owner is not None:
            user = owner.domain, owner.user
            if user in self._slow or user in self._senders:
                return self._slow.setdefault(user, deque())
        return self._fresh if item.is_kept else self._requests

    def ask(
        self,
        action: Callable[[Work, Parts], T],
        answer: Callable[[T | None, Exception | None], None],
        owner: Owner | None = None,
    ) -> None:
        """Have ``action`` run in a wake soon; ``answer`` is called once that is committed.

        Raises:
            Busy: too much waits already.
        """
        self.put(RequestInput(action, answer, owner))

    async def request(
        self,
        action: Callable[[Work, Parts], T],
        timeout_s: float = 30.0,
        owner: Owner | None = None,
    ) -> T:
        """``ask``, as a coroutine.

        Raises:
            MusterError: the action refused, or could not be stored.
            TimeoutError: no wake committed it in time; it may still happen.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def answer(result: T | None, error: Exception | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(cast(T, result))

        self.ask(action, answer, owner)
        return await asyncio.wait_for(future, timeout_s)

    def take(self, now: float, share: WakeShare | None = None) -> list[Input]:
        """The inputs of the wake at ``now``, seconds: the share of INPUTS_A_WAKE, or those of an
        undone wake."""
        self._senders = {user: until for user, until in self._senders.items() if until > now}
        if self._again:
            return self._again.popleft()
        others = bool(self._requests or self._fresh)
        if self._slow and (self._slow_is_next or not others):
            self._slow_is_next = False
            user, queue = next(iter(self._slow.items()))
            del self._slow[user]
            taken = [queue.popleft()]
            if queue:
                self._slow[user] = queue  # behind the other users
            return taken
        self._slow_is_next = bool(self._slow)
        most = INPUTS_A_WAKE if share is None else share.of(INPUTS_A_WAKE)
        agents_first, self.agents_are_next = self.agents_are_next, False
        self._took_requests = bool(self._requests) and not agents_first
        if len(self._requests) <= FEW_REQUESTS and not agents_first and not self._few_are_told():
            self.agents_are_next = bool(self._requests)
            return _taken(self._requests or self._fresh, most)
        queues = self._requests, self._fresh
        first, later = reversed(queues) if agents_first else queues
        taken = _taken(first, most - min(len(later), most // LATER_PART))
        return taken + _taken(later, most - len(taken))

    def _few_are_told(self) -> bool:
        """Whether the inputs of agents that wait tell little in all."""
        told = 0
        for item in self._fresh:
            told += item.amount
            if told > FEW_TOLD:
                return False
        return True

    def apply(self, inputs: list[Input], work: Work, parts: Parts) -> None:
        """Apply the inputs of a wake; those left after MAX_CHANGES changes, or MAX_TOLD reports, or
        once handlers have MAX_RECORDS records more to look at, wait for the next wake.

        Raises:
            Undone: an input failed; see ``_take_apart``.
            CommitFailed: the database cannot be read. No other input is tried: each would wait for
                the server.
        """
        share = work.share
        most_changes, most_told = share.of(MAX_CHANGES), share.of(MAX_TOLD)
        size, most_marked, told = work.unit.size, work.marked + share.of(MAX_RECORDS), 0
        for position, item in enumerate(inputs):
            told += item.amount
            is_much = told > most_told and position > 0
            if is_much or size > most_changes or work.marked >= most_marked:
                self.put_back(inputs[position:])
                del inputs[position:]
                break  # handlers have their turn in the next wake
            before = size
            try:
                item.take(work, parts)
            except OperationalError as error:
                raise CommitFailed(f"the database cannot be read: {cause_of(error)}") from error
            except Exception as error:
                if not item.is_kept and work.unit.size == before:
                    log.error("a request failed, and is refused", exc_info=error)
                    refuse(item, error)  # it has changed nothing
                    continue
                self._take_apart(inputs, position, error)
                raise Undone from error
            size = work.unit.size
            self._note_size(item, size - before, work.now)

    def _take_apart(self, inputs: list[Input], position: int, error: Exception) -> None:
        """Handle the failure of one of the inputs. It is refused only if it fails as the first
        input of a wake, because a refusal may tell its sender that all earlier inputs are stored.
        So the inputs before it are taken in a wake of their own first, and then its parts."""
        item, parts = inputs[position], inputs[position].apart()
        self.give_back(inputs[position + 1 :])
        if position == 0 and len(parts) == 1:
            log.error("an input failed, and is refused", exc_info=error)
            refuse(item, error)
        else:
            self.give_back([*parts])
            self.give_back(inputs[:position])
        inputs.clear()

    def _note_size(self, item: Input, changes: int, now: float) -> None:
        """Note how many rows an input changed by itself."""
        if changes > LARGE and item.owner is not None:
            self._senders[item.owner.domain, item.owner.user] = now + LARGE_AGAIN_S

    def put_back(self, inputs: list[Input]) -> None:
        """Put back inputs that no wake has taken, each before the later inputs of its sender."""
        if self._again:  # later inputs of the same agents may be among them
            self.give_back(inputs)
            return
        if self._took_requests and any(item.is_kept for item in inputs):
            self.agents_are_next = True
        for item in reversed(inputs):
            self._queue_of(item).appendleft(item)

    def take_requests(self) -> list[Input]:
        """Remove and return all inputs that are not kept while nothing can be stored."""
        found: list[Input] = []
        for queue in (self._requests, self._fresh, *self._slow.values()):
            found += [item for item in queue if not item.is_kept]
            kept = [item for item in queue if item.is_kept]
            queue.clear()
            queue.extend(kept)
        self._slow = {user: queue for user, queue in self._slow.items() if queue}
        return found

    def give_back(self, inputs: list[Input]) -> None:
        """Have these inputs taken next, together."""
        if inputs:
            self._again.appendleft(inputs)

    def take_all_given_back(self) -> list[Input]:
        """Remove and return all inputs that were given back, in their order."""
        inputs = [*chain.from_iterable(self._again)]
        self._again.clear()
        return inputs

    def give_back_apart(self, inputs: list[Input]) -> Input | None:
        """Have these inputs taken in two wakes, because one of them made its wake fail. If there is
        only one input, the answer is that input.
        """
        if len(inputs) == 1:
            inputs = [*inputs[0].apart()]
        if len(inputs) == 1:
            return inputs[0]
        middle = len(inputs) // 2
        self.give_back(inputs[middle:])
        self.give_back(inputs[:middle])
        return None


def _taken(queue: deque[Input], most: int) -> list[Input]:
    """The first inputs of a queue, which are removed from it."""
    return [queue.popleft() for _ in range(min(len(queue), most))]


def refuse(item: Input, error: Exception) -> None:
    """Tell the sender of an input that no part of it was applied, and why."""
    if isinstance(error, SQLAlchemyError):
        error = NotStored(f"the database cannot be read: {cause_of(error)}")
    try:
        item.refuse(error)
    except Exception:  # other senders wait too
        log.exception("a sender could not be told that its input is refused")


def refuse_requests(inputs: Iterable[Input], error: Exception) -> None:
    """Tell the senders of those inputs that are not kept for later."""
    for item in inputs:
        if not item.is_kept:
            refuse(item, error)
