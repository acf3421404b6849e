"""The hollow twin of the publisher of traffic: sets are lost, late or out of order, by a seed."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from muster.control.deployment.publishing.effects import PublishServices
from muster.control.engine.effects import Performer
from muster.core.clock import Clock
from muster.core.serving.traffic import TrafficService
from proving.hollow.performers.late_calls import LateCalls


@dataclass(frozen=True, slots=True)
class PublishFaults:
    """How often each fault happens, as parts of 1 of all effects.

    Args:
        lost: no balancer hears of the set.
        doubled: the set is published twice.
        late_s: the longest time until a set is published, so that the order changes too.
    """

    lost: float = 0.0
    doubled: float = 0.0
    late_s: float = 0.0


NO_PUBLISH_FAULTS = PublishFaults()


class HollowPublisher(LateCalls, Performer[PublishServices]):
    """A balancer of whom ``services`` tells what it has, as of ``version``; sets are published when
    ``tick`` is called. A set that is older than what is published changes nothing, as with the
    real ones.

    Args:
        publish: is called with each set at the moment at which it is published.
    """

    kind = PublishServices

    def __init__(
        self,
        clock: Clock,
        publish: Callable[[PublishServices], None] = lambda effect: None,
        seed: int = 1,
        faults: PublishFaults = NO_PUBLISH_FAULTS,
    ) -> None:
        super().__init__(clock, random.Random(seed))
        self.faults = faults
        self.version = -1
        self.services: tuple[TrafficService, ...] = ()
        self._publish = publish

    def perform(self, effects: Sequence[PublishServices]) -> None:
        for effect in effects:
            if not self.happens(self.faults.lost):
                for _ in range(1 + self.happens(self.faults.doubled)):
                    self.later(partial(self._carry_out, effect), self.faults.late_s)

    def _carry_out(self, effect: PublishServices) -> None:
        if effect.version >= self.version:
            self.version, self.services = effect.version, effect.services
            self._publish(effect)
