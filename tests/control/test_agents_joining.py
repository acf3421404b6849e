"""Names of agents: taken while there is such an agent, free once it was removed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.control.world import World

from muster.core.errors import MusterError
from muster.core.owner import Owner, Principal, Role
from muster.core.resources import Resources
from muster.core.specs import ScalingGroup
from muster.core.states import AgentStatus

ONE_CPU = Resources(cpu_milli=1000, memory_bytes=2**30)
ADMIN = Principal(Owner("default", "default", "root"), Role.ADMIN)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    group = ScalingGroup(name="default", agent_silence=5.0, kernel_lease=10.0)
    world = World(tmp_path, dict.fromkeys("ab", ONE_CPU), group=group)
    yield world
    world.close()


def remove(world: World, name: str) -> None:
    """Have the agent fall silent, and forget it."""
    agent = world.agents[world.agent(name).id]
    agent.online = False
    world.run_until(lambda: world.plane.live.agents[agent.id].status is AgentStatus.LOST)
    world.ask(lambda work, requests: requests.remove_agent(work, ADMIN, agent.id))
    del world.agents[agent.id]


def test_name_of_a_removed_agent_may_join_again_and_again(world: World) -> None:
    ids = {world.agent("b").id}
    for _ in range(2):
        remove(world, "b")
        ids.add(world.add_agent("b", ONE_CPU).id)

    assert len(ids) == 3, "a new agent each time"
    world.restart_controller()
    assert sorted(agent.name for agent in world.plane.live.agents.values()) == ["a", "b"]


def test_name_of_an_agent_that_is_there_is_refused(world: World) -> None:
    with pytest.raises(MusterError, match="'b' is connected"):
        world.add_agent("b", ONE_CPU)


def test_name_may_join_again_in_the_wake_in_which_it_was_removed(world: World) -> None:
    former = world.agent("b")
    former.online = False
    world.run_until(lambda: world.plane.live.agents[former.id].status is AgentStatus.LOST)
    world.plane.ask(
        lambda work, requests: requests.remove_agent(work, ADMIN, former.id), lambda *_: None
    )
    del world.agents[former.id]
    joined = world.add_agent("b", ONE_CPU)

    assert joined.id != former.id
    assert world.plane.live.agents[joined.id].status is AgentStatus.ALIVE
