"""The hollow twin of the lighter."""

from collections.abc import Sequence
from functools import partial

from proving.hollow.performers.late_calls import FoundTwin
from tests.control.lamp.module import LampWasLit, LightLamp

LATE_S = 5.0


class HollowLighter(FoundTwin):
    """A lighter that is late, and often fails."""

    kind = LightLamp

    def perform(self, effects: Sequence[LightLamp]) -> None:
        for effect in effects:
            self.later(partial(self._light, effect), LATE_S)

    def _light(self, effect: LightLamp) -> None:
        self.report(LampWasLit(effect.lamp, effect.generation, lit=self.happens(0.5)))
