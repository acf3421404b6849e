"""What came in and waits for a wake: requests of people, and what agents said."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from muster.core.errors import Busy
from muster.core.ids import AgentId
from muster.wire.messages import Disk, Hello, Reports

if TYPE_CHECKING:
    from muster.control.engine.work import Work
    from muster.control.requests import Requests

MAX_INPUTS = 100_000
"""Inputs that may wait for the next wake."""
INPUTS_A_WAKE = 2_000


@dataclass(slots=True)
class Asked:
    """A request and who waits for its answer."""

    action: "Callable[[Work, Requests], Any]"
    answer: Callable[[Any, Exception | None], None]


@dataclass(slots=True)
class Said:
    agent: AgentId
    message: Hello | Reports | Disk | None  # None: it left


Input = Asked | Said


class Inbox:
    """Inputs in the order in which they came; those of a wake that was undone go first, in the
    batches that they were given back in."""

    def __init__(self) -> None:
        self._fresh: deque[Input] = deque()
        self._again: deque[list[Input]] = deque()

    def __bool__(self) -> bool:
        return bool(self._fresh or self._again)

    def put(self, item: Input) -> None:
        """
        Raises:
            Busy: too much waits already.
        """
        if len(self._fresh) >= MAX_INPUTS:
            raise Busy("the controller has more to do than it can take; try again later")
        self._fresh.append(item)

    def take(self) -> list[Input]:
        """The inputs of the next wake."""
        if self._again:
            return self._again.popleft()
        return [self._fresh.popleft() for _ in range(min(len(self._fresh), INPUTS_A_WAKE))]

    def give_back(self, inputs: list[Input]) -> None:
        """Have these taken next, together."""
        if inputs:
            self._again.appendleft(inputs)

    def take_all_given_back(self) -> list[Input]:
        """What was given back, in its order; it is here no more."""
        inputs = [*chain.from_iterable(self._again)]
        self._again.clear()
        return inputs

    def give_back_apart(self, inputs: list[Input]) -> Input | None:
        """Have these taken in two wakes, because one of them made its wake fail; the answer is the
        one that did, once it is alone.
        """
        if len(inputs) == 1:
            inputs = _parts(inputs[0])
        if len(inputs) == 1:
            return inputs[0]
        middle = len(inputs) // 2
        self.give_back(inputs[middle:])
        self.give_back(inputs[:middle])
        return None


def _parts(item: Input) -> list[Input]:
    """The reports of one message as messages of their own."""
    if isinstance(item, Asked) or not isinstance(item.message, Reports):
        return [item]
    batch = item.message
    first = batch.last_seq - len(batch.reports) + 1
    return [
        Said(item.agent, replace(batch, last_seq=first + index, reports=(report,)))
        for index, report in enumerate(batch.reports)
    ] or [item]
