"""An agent that is not heard is lost when its kernels are gone for certain, and no sooner."""

from pathlib import Path

from tests.control.world import World

from muster.agent.supervisor.supervisor import LEASE_GRACE_MAX_S
from muster.core.resources import Resources
from muster.core.specs import ScalingGroup
from muster.core.states import AgentStatus


def test_agent_is_lost_only_after_its_lease_and_the_grace_that_its_kernels_may_have(
    tmp_path: Path,
) -> None:
    group = ScalingGroup(name="default", agent_silence=5.0, kernel_lease=30.0)
    world = World(tmp_path, {"a": Resources(cpu_milli=1000)}, group=group)
    agent = world.agent("a")
    record = world.plane.live.agents[agent.id]
    agent.online = False
    silent_since = world.clock.now()
    while record.status is not AgentStatus.LOST:
        silent_s = world.clock.now() - silent_since
        assert silent_s < group.kernel_lease * 2
        world.run(0.5)
    world.close()

    assert silent_s > group.kernel_lease + LEASE_GRACE_MAX_S
