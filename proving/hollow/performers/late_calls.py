"""Late calls, which the hollow twins of performers have in common; and twins that are found."""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from muster.control.engine.effects import Performer
from muster.control.engine.inputs import Input
from muster.core.clock import Clock

Call = Callable[[], None]


class LateCalls:
    """Calls that are made when ``tick`` is called and they are due, in any order, by chance."""

    def __init__(self, clock: Clock, chance: random.Random) -> None:
        self._clock = clock
        self._chance = chance
        self._due: list[tuple[float, Call]] = []

    @property
    def next_at(self) -> float | None:
        """When something is due next; None if nothing is."""
        return min((at for at, _ in self._due), default=None)

    def tick(self) -> bool:
        """Make every call that is due, in any order; whether there was any."""
        now = self._clock.now()
        due = [each for each in self._due if each[0] <= now]
        self._due = [each for each in self._due if each[0] > now]
        self._chance.shuffle(due)
        for _, call in due:
            call()
        return bool(due)

    def later(self, call: Call, within_s: float) -> None:
        """Have a call be made within so many seconds."""
        self._due.append((self._clock.now() + self._chance.uniform(0.0, within_s), call))

    def happens(self, part: float) -> bool:
        """Whether something happens that does so in this part of all cases."""
        return self._chance.random() < part


class FoundTwin(LateCalls, Performer[Any]):
    """A twin that asks for nothing of a world but its time, its chance and the way of outcomes, and
    that carries effects out late and in any order. The worlds find it by its folder
    (``found_twins``); twins of machines, channels, balancers and the like are made by the world
    that has these.

    Args:
        report: takes outcomes.
    """

    late_s = 5.0
    """The longest time until an effect is carried out."""

    def __init__(self, clock: Clock, report: Callable[[Input], None], seed: int = 1) -> None:
        super().__init__(clock, random.Random(seed))
        self.report = report

    def perform(self, effects: Sequence[Any]) -> None:
        for effect in effects:
            self.later(partial(self.carry_out, effect), self.late_s)

    def carry_out(self, effect: Any) -> None:
        """Carry out an effect, and report its outcome, as far as chance lets it."""
        raise NotImplementedError
