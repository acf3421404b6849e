"""Each move of an agent is in its row and its history with the reason, and placement follows."""

import json
from typing import Any, NamedTuple

import pytest
from sqlalchemy import select
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import DrivenAgent
from tests.control.world import World

from muster.control.agent.requests import AgentRequests
from muster.control.identity.tokens import create_join_token
from muster.core.ids import AgentId
from muster.core.owner import Owner, Principal, Role
from muster.core.resources import Resources
from muster.core.specs import JobSpec, ScalingGroup
from muster.core.specs.account import JoinTokenSpec
from muster.core.states import AgentStatus, JobState
from muster.store import schema

ADMIN = Principal(Owner("default", "default", "root"), Role.ADMIN)
ONE_CPU = Resources(cpu_milli=1000, memory_bytes=2**30)
JOINED = ("Join", "ALIVE", "AGENT_JOINED")
FELL_SILENT = ("DetectSilence", "UNREACHABLE", "AGENT_SILENT")
LOST = ("DetectLoss", "LOST", "AGENT_SILENT")
CAME_BACK = ("AgentHello", "ALIVE", "AGENT_RETURNED")


class Stored(NamedTuple):
    """An agent in SQL: the status and reason of its row, and the rows of its history as (phase,
    status, reason)."""

    status: str
    reason: str | None
    history: list[tuple[str, str, str]]


@pytest.fixture
def world(worlds: MakeWorld) -> World:
    group = ScalingGroup(name="default", agent_silence=5.0, kernel_lease=10.0)
    return worlds(dict.fromkeys("ab", ONE_CPU), group=group)


def stored(world: World, agent: DrivenAgent) -> Stored:
    agents, history = schema.agents.c, schema.history.c
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        row = connection.execute(
            select(agents.status, agents.reason).where(agents.id == agent.id)
        ).one()
        told: Any = connection.execute(
            select(history.phase, history.to_status, history.reasons)
            .where(history.entity == agent.id)
            .order_by(history.seq)
        )
        rows = [(each.phase, each.to_status, json.loads(each.reasons)[0][0]) for each in told]
    return Stored(row.status, row.reason, rows)


def silent(world: World, until: AgentStatus) -> DrivenAgent:
    """Agent ``b``, of which nothing is heard any more."""
    agent = world.agent("b")
    agent.online = False
    world.run_until(lambda: world.plane.live.agents[agent.id].status is until)
    world.desk.agent_left(agent.id)
    world.settle()
    return agent


def is_counted(world: World, id_: AgentId) -> bool:
    """Whether placement knows the agent."""
    return bool(world.cluster.groups["default"].snapshot.slots_among([id_]))


@pytest.mark.parametrize("lost", [False, True])
def test_agent_that_returns_keeps_no_reason_and_takes_work_again(world: World, lost: bool) -> None:
    agent = silent(world, AgentStatus.LOST if lost else AgentStatus.UNREACHABLE)
    assert stored(world, agent).reason == "AGENT_SILENT"
    world.connect(agent)
    moves = [JOINED, FELL_SILENT, *([LOST] if lost else []), CAME_BACK]
    assert stored(world, agent) == Stored("ALIVE", None, moves)
    on = {"agents": ["b"], "agents_only": True}
    job = world.submit(JobSpec.model_validate({"command": ["x"], "placement": on}))
    assert job.status is JobState.RUNNING


def test_agent_that_is_removed_has_the_removal_as_its_reason(world: World) -> None:
    agent = silent(world, AgentStatus.LOST)
    world.ask(lambda work, parts: parts[AgentRequests].remove(work, ADMIN, agent.id))
    moves = [JOINED, FELL_SILENT, LOST, ("Remove", "REMOVED", "AGENT_REMOVED")]
    assert stored(world, agent) == Stored("REMOVED", "AGENT_REMOVED", moves)
    assert not is_counted(world, agent.id)


def test_agent_whose_machine_is_given_up_has_that_as_its_reason(world: World) -> None:
    agent = silent(world, AgentStatus.UNREACHABLE)
    world.ask(lambda work, parts: parts[AgentRequests].remove(work, ADMIN, agent.id, lost=True))
    moves = [JOINED, FELL_SILENT, ("Remove", "REMOVED", "AGENT_REMOVED_AS_LOST")]
    assert stored(world, agent) == Stored("REMOVED", "AGENT_REMOVED_AS_LOST", moves)


def test_agent_whose_name_another_machine_gets_has_that_as_its_reason(world: World) -> None:
    agent = silent(world, AgentStatus.LOST)
    spec = JoinTokenSpec(agent="b")
    _, token = world.ask(lambda work, _: create_join_token(work, ADMIN, spec))
    joined = world.join("b", token)
    moves = [JOINED, FELL_SILENT, LOST, ("Join", "REMOVED", "AGENT_REPLACED")]
    assert stored(world, agent) == Stored("REMOVED", "AGENT_REPLACED", moves)
    assert not is_counted(world, agent.id)
    assert is_counted(world, joined.id)


def test_agent_that_speaks_in_the_wake_of_its_removal_stays_removed_and_disturbs_no_other(
    world: World,
) -> None:
    agent = silent(world, AgentStatus.LOST)
    world.closed.clear()
    world.plane.ask(
        lambda work, parts: parts[AgentRequests].remove(work, ADMIN, agent.id), lambda *_: None
    )
    world.connect(agent)
    assert stored(world, agent).status == "REMOVED"
    assert world.closed == [(agent.id, "say hello again")]
    world.desk.agent_said(agent.id, agent.hello())
    assert world.closed[1:] == [(agent.id, "this agent was removed")]
