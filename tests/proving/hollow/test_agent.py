"""The hollow agent takes every message that the protocol has, and no other."""

import random
from typing import Any, cast

import pytest
from proving.hollow.agent import HollowAgent, Identity
from proving.hollow.agent_twin import Offer
from proving.hollow.machine import Machine
from proving.hollow.network import CALM, Stream, Way
from proving.hollow.supervisor import HollowSupervisor, Run
from proving.hollow.timeline import Timeline
from proving.hollow.virtual_clock import VirtualClock

from muster.core.health.remedy import Remedy
from muster.core.ids import AgentId, KernelId
from muster.core.resources import Resources
from muster.wire.messages import Commands, HealthNoted, HealthSeen, Stop


class Connected:
    """An agent with a stream, whose other end the test is."""

    def __init__(self) -> None:
        self.timeline = Timeline(VirtualClock())
        self.stream = Stream(self.timeline, random.Random(1), lambda: CALM)
        machine = Machine("m", self.timeline.clock)
        supervisor = HollowSupervisor(
            self.timeline, machine, lambda start: Run(), lambda kernel: None, lambda kernel: None
        )
        agent = HollowAgent(
            "a",
            self.timeline,
            machine,
            supervisor,
            Offer(Resources()),
            random.Random(1),
            lambda agent: self.stream,
            lambda agent: None,
        )
        agent.identity = Identity(AgentId("agt-1"), "credential")
        self.agent = agent
        self.said: list[object] = []
        self.stream.listen(Way.UP, self.said.append, lambda why: None)
        agent.start()
        self.timeline.run(1.0)

    def say(self, message: object) -> None:
        self.stream.send(Way.DOWN, message)
        self.timeline.run(1.0)


@pytest.mark.parametrize("message", ["nonsense", Commands((cast(Any, "nonsense"),))])
def test_message_or_command_of_an_unknown_kind_is_an_error(message: object) -> None:
    connected = Connected()
    connected.say(Commands((Stop(KernelId("krn-1"), 0, 0.0, "test"),)))
    with pytest.raises(AssertionError, match="nonsense"):
        connected.say(message)


def test_agent_tells_what_it_sees_of_itself_until_it_is_noted() -> None:
    connected = Connected()
    connected.agent.sees(Remedy.REBOOT, "Xid 79", (3,), confirmed=True)
    connected.timeline.run(1.0)
    [seen] = [each for each in connected.said if isinstance(each, HealthSeen)]
    [sighting] = seen.sightings
    assert (sighting.remedy, sighting.devices, sighting.boot_id) == (
        Remedy.REBOOT,
        (3,),
        "m-boot-1",
    )
    connected.say(HealthNoted(sighting.seq))
    assert not connected.agent.sightings.kept
