"""The hollow twin of the performer of hard reboots: effects and outcomes are lost, doubled, late,
out of order or never told, by a seed."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from muster.control.engine.effects import Performer
from muster.control.health.rebooting.effects import MachineRebooted, RebootMachine
from muster.core.clock import Clock
from muster.core.ids import AgentId
from proving.hollow.performers.late_calls import LateCalls


@dataclass(frozen=True, slots=True)
class RebootFaults:
    """How often each fault happens, as parts of 1 of all effects or outcomes.

    Args:
        lost: the effect is never carried out.
        doubled: the effect is carried out twice, which boots a machine twice.
        mute: the effect is carried out, and nobody is told.
        refused: the machine is not rebooted, and that is told.
        unknown: the machine is rebooted or not, and told is that nobody knows.
        outcome_doubled: the outcome is told twice.
        late_s: the longest time until the effect is carried out, and again until the outcome is
            told, so that the order changes too.
    """

    lost: float = 0.0
    doubled: float = 0.0
    mute: float = 0.0
    refused: float = 0.0
    unknown: float = 0.0
    outcome_doubled: float = 0.0
    late_s: float = 0.0


NO_REBOOT_FAULTS = RebootFaults()


class HollowRebooter(LateCalls, Performer[RebootMachine]):
    """A performer that carries out effects and reports outcomes when ``tick`` is called.
    ``rebooted`` counts by the agent how often its machine was.

    Args:
        reboot: has the machine of an agent boot anew; False if there is no such machine.
        report: takes outcomes.
    """

    kind = RebootMachine

    def __init__(
        self,
        clock: Clock,
        reboot: Callable[[AgentId], bool],
        report: Callable[[MachineRebooted], None],
        seed: int = 1,
        faults: RebootFaults = NO_REBOOT_FAULTS,
    ) -> None:
        super().__init__(clock, random.Random(seed))
        self.faults = faults
        self.rebooted: Counter[AgentId] = Counter()
        self._reboot = reboot
        self._report = report
        self._is_forsaken = False

    def perform(self, effects: Sequence[RebootMachine]) -> None:
        for effect in effects:
            if not self.happens(self.faults.lost):
                for _ in range(1 + self.happens(self.faults.doubled)):
                    self.later(partial(self._carry_out, effect), self.faults.late_s)

    def be_forsaken(self) -> None:
        """Have the controller be dead: calls that are under way are carried out, and nobody hears
        of them."""
        self._is_forsaken = True

    def _carry_out(self, effect: RebootMachine) -> None:
        is_unknown = self.happens(self.faults.unknown)
        done: bool | None
        if self.happens(self.faults.refused):
            done, told = False, f"the hollow rebooter refuses order {effect.generation}"
        elif is_unknown and self.happens(0.5):
            done, told = None, "lost"
        elif self._reboot(effect.agent):
            self.rebooted[effect.agent] += 1
            done, told = (None, "lost") if is_unknown else (True, "")
        else:
            done, told = False, "there is no such machine"
        if not self.happens(self.faults.mute):
            outcome = MachineRebooted(effect.incident, effect.generation, done, told)
            for _ in range(1 + self.happens(self.faults.outcome_doubled)):
                self.later(partial(self._tell, outcome), self.faults.late_s)

    def _tell(self, outcome: MachineRebooted) -> None:
        if not self._is_forsaken:
            self._report(outcome)
