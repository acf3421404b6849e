"""The hollow twin of the lighter."""

from proving.hollow.performers.late_calls import FoundTwin
from tests.control.lamp.module import LampWasLit, LightLamp


class HollowLighter(FoundTwin):
    """A lighter that is late, and often fails."""

    kind = LightLamp

    def carry_out(self, effect: LightLamp) -> None:
        self.report(LampWasLit(effect.lamp, effect.generation, lit=self.happens(0.5)))
