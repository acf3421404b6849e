"""The words of why an agent takes no new work, as whoever waits for it is told."""

import pytest
from tests.control.conftest import MakeWorld
from tests.control.world import ADA, World

from muster.control.agent.requests import AgentRequests
from muster.control.job.explanation import explain_job
from muster.core.specs import JobSpec
from muster.core.states import AgentBar
from muster.core.states.health import ILL, HealthStatus


def why(world: World) -> tuple[str, str]:
    """The sentence of why a job waits, and what the only agent lacks."""
    job = world.submit(JobSpec(command=["x"]))
    told = explain_job(world.plane.live, world.cluster, job.id, world.clock.now(), ADA)
    assert told.placement is not None
    (group,) = told.placement.requests[0].groups
    (reason,) = told.reasons
    return reason.sentence, group.shortfalls[0].sentence


def test_operators_words_stay_as_they_were_written(group_world: MakeWorld) -> None:
    world = group_world({"a": 2})
    id_, note = world.agent("a").id, "RMA #4711, ask J. Doe by 2026-12-01T08:00:00+00:00"
    world.ask(lambda work, parts: parts[AgentRequests].bar(work, ADA, id_, AgentBar.CORDONED, note))
    assert why(world) == (
        f"none of 1 agent in group default takes new work: 1 cordoned: {note}",
        f"the agent is cordoned: {note}",
    )


@pytest.mark.parametrize("reason", ["its slice is initializing", "its slice is being deleted"])
def test_agent_of_a_slice_that_is_not_ready_is_kept_from_work(
    group_world: MakeWorld, reason: str
) -> None:
    world = group_world({"a": 2})
    agent = world.plane.live.agents[world.agent("a").id]
    agent.withheld = reason
    world.cluster.agent_changed(agent)
    assert why(world) == (
        f"none of 1 agent in group default takes new work: 1 kept from work: {reason}",
        f"the agent is kept from work: {reason}",
    )


def test_agent_that_is_ill_and_one_without_room_on_its_disk_read_as_sentences(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 2})
    agent = world.plane.live.agents[world.agent("a").id]
    agent.ill = ILL[HealthStatus.REBOOTING]
    world.cluster.agent_changed(agent)
    assert why(world)[1] == "the agent is being rebooted"
    agent.disk_full = True
    world.cluster.agent_changed(agent)
    assert why(world)[1] == "the agent is out of disk (DISK_FULL)"
