"""The check of a machine's clock against the controller's."""

from muster.agent.health.check import CheckedMachine, PythonCheck
from muster.core.health.verdict import Finding, Severity, Verdict, unknown, verdict_of
from muster.core.text import duration

LARGEST_OFFSET_S = 1.0
"""Seconds by which the clock may differ, setting ``clock_offset_s``."""


class ClockCheck(PythonCheck):
    """The offset of the clock, which was measured before. It only observes, unless an operator says
    otherwise: were the controller's own clock wrong, every machine would seem faulty."""

    name = "clock"
    observe_only = True

    def applies(self, machine: CheckedMachine) -> bool:
        return machine.clock_offset_s is not None and super().applies(machine)

    def look(self, machine: CheckedMachine) -> Verdict:
        offset_s = machine.clock_offset_s
        if offset_s is None:
            return unknown(self.name, "the offset of the clock was not measured")
        largest_s = machine.setting("clock_offset_s", LARGEST_OFFSET_S)
        if abs(offset_s) <= largest_s:
            return verdict_of(self.name)
        direction = "ahead of" if offset_s > 0 else "behind"
        what = (
            f"the clock is {duration(abs(offset_s))} {direction} the controller's, more than "
            f"{duration(largest_s)}"
        )
        return verdict_of(self.name, [Finding(self.name, Severity.FAULT, what)])
