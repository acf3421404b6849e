"""The hollow twin of the sender of notices: effects and outcomes are lost, doubled,
late or out of order, by a seed."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from muster.control.engine.effects import Performer
from muster.control.notice.effects import NoticeOutcome, SendNotice
from muster.core.clock import Clock
from muster.core.reasons.of_notices import NoticeRefused
from proving.hollow.performers.late_calls import LateCalls


@dataclass(frozen=True, slots=True)
class Faults:
    """How often each fault happens, as parts of 1 of all effects or outcomes.

    Args:
        lost: the effect is never carried out.
        doubled: the effect is carried out twice.
        mute: the effect is carried out, and nobody is told.
        refused: the channel does not take the notice, and that is told.
        outcome_doubled: the outcome is told twice.
        late_s: the longest time until the effect is carried out, and again until the outcome is
            told, so that the order changes too.
    """

    lost: float = 0.0
    doubled: float = 0.0
    mute: float = 0.0
    refused: float = 0.0
    outcome_doubled: float = 0.0
    late_s: float = 0.0


NO_FAULTS = Faults()


class HollowSender(LateCalls, Performer[SendNotice]):
    """A performer that carries out effects and reports outcomes when ``tick`` is called. ``sent``
    counts by the name of each notice how often a channel got it.

    Args:
        report: takes outcomes.
    """

    kind = SendNotice

    def __init__(
        self,
        clock: Clock,
        report: Callable[[NoticeOutcome], None],
        seed: int = 1,
        faults: Faults = NO_FAULTS,
    ) -> None:
        super().__init__(clock, random.Random(seed))
        self.faults = faults
        self.sent: Counter[str] = Counter()
        self._report = report

    def perform(self, effects: Sequence[SendNotice]) -> None:
        for effect in effects:
            if not self.happens(self.faults.lost):
                for _ in range(1 + self.happens(self.faults.doubled)):
                    self.later(partial(self._send, effect), self.faults.late_s)

    def _send(self, effect: SendNotice) -> None:
        why = None
        if self.happens(self.faults.refused):
            why = NoticeRefused(answer=503)
        else:
            self.sent[effect.name] += 1
        if not self.happens(self.faults.mute):
            outcome = NoticeOutcome(effect.name, effect.generation, why)
            for _ in range(1 + self.happens(self.faults.outcome_doubled)):
                self.later(partial(self._report, outcome), self.faults.late_s)
