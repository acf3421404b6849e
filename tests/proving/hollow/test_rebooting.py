"""The hollow twin of the performer of hard reboots: what becomes of effects and outcomes."""

from dataclasses import dataclass, field

import pytest
from proving.hollow.performers.rebooting import HollowRebooter, RebootFaults
from proving.hollow.virtual_clock import VirtualClock

from muster.control.health.entity import IncidentId
from muster.control.health.rebooting.effects import MachineRebooted, RebootMachine
from muster.core.ids import AgentId

EFFECT = RebootMachine(IncidentId("inc-1"), 3, AgentId("ag-1"), "why")


@dataclass
class Site:
    """A machine that boots anew as often as it is asked, and what is told of that."""

    faults: RebootFaults
    clock: VirtualClock = field(default_factory=VirtualClock)
    told: list[MachineRebooted] = field(default_factory=list)
    boots: int = 0
    is_there: bool = True

    def __post_init__(self) -> None:
        self.rebooter = HollowRebooter(
            self.clock, self._reboot, self.told.append, faults=self.faults
        )

    def _reboot(self, agent: AgentId) -> bool:
        self.boots += self.is_there
        return self.is_there

    def perform(self) -> list[MachineRebooted]:
        """The outcome that is told at last."""
        self.rebooter.perform([EFFECT])
        while (at := self.rebooter.next_at) is not None:
            self.clock.advance_to(max(at, self.clock.now()))
            self.rebooter.tick()
        return self.told


@pytest.mark.parametrize(
    ("faults", "boots", "told"),
    [
        (RebootFaults(), 1, [True]),
        (RebootFaults(late_s=600.0), 1, [True]),
        (RebootFaults(lost=1.0), 0, []),
        (RebootFaults(doubled=1.0), 2, [True, True]),
        (RebootFaults(mute=1.0), 1, []),
        (RebootFaults(refused=1.0), 0, [False]),
        (RebootFaults(outcome_doubled=1.0), 1, [True, True]),
    ],
)
def test_effects_are_lost_doubled_late_or_refused(
    faults: RebootFaults, boots: int, told: list[bool]
) -> None:
    site = Site(faults)
    assert [each.done for each in site.perform()] == told
    assert site.boots == site.rebooter.rebooted[EFFECT.agent] == boots
    assert all((each.incident, each.generation) == ("inc-1", 3) for each in site.told)


def test_machine_that_is_not_there_is_told() -> None:
    site = Site(RebootFaults(), is_there=False)
    assert [each.done for each in site.perform()] == [False]


def test_doubt_is_told_whether_or_not_the_machine_was_rebooted() -> None:
    site = Site(RebootFaults(unknown=1.0))
    for _ in range(30):
        site.perform()
    assert {each.done for each in site.told} == {None}
    assert 0 < site.boots < 30


def test_controller_that_died_hears_nothing() -> None:
    site = Site(RebootFaults())
    site.rebooter.perform([EFFECT])
    site.rebooter.be_forsaken()
    assert site.perform() == []
    assert site.boots == 2
