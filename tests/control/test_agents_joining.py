"""Joining: whose a name is, and what a join token is good for."""

import math
from functools import partial
from pathlib import Path

import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import insert, select, text
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import DrivenAgent, attempt
from tests.control.world import World
from tests.databases import ON_BOTH

from muster.api.live_views import agent_view
from muster.control.agent.joining import join
from muster.control.agent.lifecycle import AgentLifecycle
from muster.control.agent.requests import AgentRequests
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.group.requests import GroupRequests
from muster.control.identity.tokens import create_join_token, revoke_join_token
from muster.core.errors import MusterError
from muster.core.owner import Owner, Principal, Role
from muster.core.resources import Resources
from muster.core.specs import JobSpec, ScalingGroup
from muster.core.specs.account import JoinTokenSpec
from muster.core.states import AgentStatus, TaskState
from muster.store import schema
from muster.store.records import Agent
from muster.store.tokens import token_hash
from muster.wire.calls import (
    Dismissed,
    JoinRequest,
)

pytestmark = ON_BOTH

ONE_CPU = Resources(cpu_milli=1000, memory_bytes=2**30)
ADMIN = Principal(Owner("default", "default", "root"), Role.ADMIN)


@pytest.fixture
def world(worlds: MakeWorld) -> World:
    group = ScalingGroup(name="default", agent_silence=5.0, kernel_lease=10.0)
    return worlds(dict.fromkeys("ab", ONE_CPU), group=group)


def remove(world: World, name: str) -> None:
    """Have the agent fall silent, and forget it."""
    agent = world.agents[world.agent(name).id]
    agent.online = False
    world.run_until(lambda: world.plane.live.agents[agent.id].status is AgentStatus.LOST)
    world.ask(lambda work, parts: parts[AgentRequests].remove(work, ADMIN, agent.id))
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
        lambda work, parts: parts[AgentRequests].remove(work, ADMIN, former.id), lambda *_: None
    )
    del world.agents[former.id]
    joined = world.add_agent("b", ONE_CPU)

    assert joined.id != former.id
    assert world.plane.live.agents[joined.id].status is AgentStatus.ALIVE


# -- agents that are gone for good -----------------------------------------------------------------


def runs_for_ever(path: Path, **more: object) -> World:
    """A world whose agents are on the controller's own machine; ``a`` runs a task."""
    spec = {"name": "default", "agent_silence": 5.0, "kernel_lease": None, **more}
    world = World(path, {"a": ONE_CPU}, group=ScalingGroup.model_validate(spec))
    world.behaviour = lambda start: Run(seconds=math.inf)
    world.boot_id = world.agent("a").machine.boot_id
    world.restart_controller()
    world.submit(JobSpec(name="long", command=["long"]))
    world.add_agent("b", ONE_CPU)
    return world


def remove_as_lost(world: World, name: str) -> None:
    id_ = world.agent(name).id
    world.ask(lambda work, parts: parts[AgentRequests].remove(work, ADMIN, id_, lost=True))


def test_agent_whose_lease_has_no_end_is_given_up_on_an_administrators_word(
    tmp_path: Path,
) -> None:
    world = runs_for_ever(tmp_path)
    former = world.agent("a")
    hashed = world.plane.live.agents[former.id].credential_hash
    goes_away(world, "a")
    world.run(3600.0, step_s=60.0)
    with pytest.raises(MusterError, match="muster agents remove --lost a"):
        world.ask(lambda work, parts: parts[AgentRequests].remove(work, ADMIN, former.id))
    assert "muster agents remove --lost a" in refusal(world, "a", invite(world, "a"))
    remove_as_lost(world, "a")
    world.run(2.0)
    assert [attempt(kernel.start) for kernel in world.agent("b").running.values()] == [2]
    assert world.plane.live.credentials[hashed] not in world.plane.live.agents
    with world.store.engine.connect() as connection:
        history = schema.history
        told = select(history.c.reasons).where(history.c.entity == former.id)
        reasons = connection.scalars(told.order_by(history.c.seq.desc())).first()
    assert reasons == '[["AGENT_REMOVED_AS_LOST", {"by": "root"}]]'
    del world.agents[former.id]
    assert world.add_agent("a", ONE_CPU).id != former.id
    world.close()


def test_agent_that_is_alive_is_not_given_up(tmp_path: Path) -> None:
    world = runs_for_ever(tmp_path)
    with pytest.raises(MusterError, match="is alive"):
        remove_as_lost(world, "a")
    assert world.agent("a").running
    world.close()


# -- another's name --------------------------------------------------------------------------------


def invite(world: World, agent: str | None = None, **fields: object) -> str:
    """The secret of a new join token."""
    spec = JoinTokenSpec.model_validate({"agent": agent, **fields})
    _, secret = world.ask(lambda work, _: create_join_token(work, ADMIN, spec))
    return str(secret)


def goes_away(world: World, name: str) -> DrivenAgent:
    agent = world.agent(name)
    world.disconnect(agent)
    world.settle()
    return agent


def refusal(world: World, name: str, token: str | None = None) -> str:
    """Why somebody else may not join under the name; the refusal tells nobody's id."""
    with pytest.raises(MusterError) as refused:
        world.join(name, token)
    assert "agt-" not in str(refused.value)
    return str(refused.value)


def test_name_of_an_agent_that_went_away_is_not_for_whoever_has_a_join_token(world: World) -> None:
    goes_away(world, "b")
    assert "is taken" in refusal(world, "b")
    world.run(60.0)
    assert world.plane.live.agents[world.agent("b").id].status is AgentStatus.LOST
    assert "muster agents invite b" in refusal(world, "b")
    assert "is taken" in refusal(world, "b", invite(world, uses=5)), "nor for any other token"


def test_name_is_not_taken_over_by_an_invitation_of_before_its_agent_went_away(
    world: World,
) -> None:
    early = invite(world, "b")
    world.run(1.0)
    goes_away(world, "b")
    assert "is taken" in refusal(world, "b", early)


def test_name_is_taken_over_by_an_invitation_of_after_its_agent_went_away(world: World) -> None:
    former = goes_away(world, "b")
    old_credential = "the first credential of agent b".ljust(40, "-")
    world.plane.live.credentials[token_hash(old_credential)] = former.id
    world.run(60.0)
    joined = world.join("b", invite(world, "b"))
    assert joined.id != former.id
    assert former.id not in world.plane.live.agents
    with pytest.raises(Dismissed):
        world.desk.authenticate(old_credential)
    with world.store.engine.connect() as connection:
        told = connection.execute(
            text("SELECT reasons FROM history WHERE entity = :id AND to_status = 'REMOVED'"),
            {"id": former.id},
        ).scalar_one()
    assert "AGENT_REPLACED" in told


def test_former_credential_is_known_as_such_after_a_restart(world: World) -> None:
    credential = "of agent c".ljust(40, "-")
    first = world.join("c", credential=credential)
    world.run(60.0)
    world.join("c", invite(world, "c"))
    world.restart_controller()
    assert first.id not in world.plane.live.agents
    with pytest.raises(Dismissed):
        world.desk.authenticate(credential)
    assert world.desk.authenticate("nobody's".ljust(40, "-")) is None


def test_name_is_not_taken_over_while_work_of_its_agent_may_still_run(world: World) -> None:
    world.behaviour = lambda start: Run(seconds=1000.0)
    job = world.submit(JobSpec(command=["sleep"], tasks=2, max_retries_preemption=5))
    world.run_until(lambda: bool(world.agent("b").running))
    goes_away(world, "b")
    assert "may still run kernels" in refusal(world, "b", invite(world, "b"))
    assert not job.counts.get(TaskState.WORKER_FAILED)
    world.run(60.0)
    assert world.join("b", invite(world, "b")).name == "b"


def test_agent_that_is_connected_is_replaced_by_nobody(world: World) -> None:
    assert "is connected" in refusal(world, "b", invite(world, "b"))


def test_request_whose_answer_was_lost_is_answered_again_and_charged_once(world: World) -> None:
    token, credential = invite(world, "c"), "chosen by c".ljust(40, "-")
    joined = world.join("c", token, credential)
    world.restart_controller()
    assert world.join("c", token, credential).id == joined.id
    assert len([a for a in world.plane.live.agents.values() if a.name == "c"]) == 1
    assert "wrong, used up, expired or revoked" in refusal(world, "d", token)


# -- join tokens -----------------------------------------------------------------------------------


def test_token_for_so_many_uses_lets_no_more_join_however_many_ask_at_once(world: World) -> None:
    token = invite(world, uses=3)
    joined: list[str] = []
    refused: list[str] = []

    def join_as(request: JoinRequest, work: Work, parts: Parts) -> Agent:
        return join(work, parts[AgentLifecycle], request)

    def answered(agent: Agent | None, error: Exception | None) -> None:
        if agent is None:
            refused.append(str(error))
        else:
            joined.append(agent.name)

    for number in range(10):
        request = JoinRequest(token, f"n{number}", "default", f"credential {number}".ljust(40, "-"))
        world.plane.ask(partial(join_as, request), answered)
    world.settle()
    assert (len(joined), len(refused)) == (3, 7)
    world.restart_controller()
    assert "used up" in refusal(world, "another", token)


def test_token_is_not_charged_for_a_join_that_could_not_be_stored(world: World) -> None:
    token = invite(world)

    def fails(work: Work, parts: Parts) -> None:
        request = JoinRequest(token, "c", "default", "chosen by c".ljust(40, "-"))
        join(work, parts[AgentLifecycle], request)
        work.unit.also(insert(schema.groups), {"name": "default", "spec": "twice"})

    with pytest.raises(MusterError, match="cannot be carried out"):
        world.ask(fails)
    world.clock.advance(2.0)
    world.settle()
    assert world.join("c", token).name == "c"


def test_token_of_another_name_group_or_time_is_refused(world: World) -> None:
    assert "an agent named 'c'" in refusal(world, "d", invite(world, "c"))
    world.ask(lambda work, parts: parts[GroupRequests].put_group(work, ScalingGroup(name="gpu")))
    assert "is for group gpu" in refusal(world, "c", invite(world, group="gpu"))
    late = invite(world, expires=60)
    world.clock.advance(60.0)
    assert "expired" in refusal(world, "c", late)
    revoked = invite(world, "c")
    assert "wrong" in refusal(world, "c", late), "the newest alone is good for a name"
    world.ask(lambda work, _: revoke_join_token(work, "c"))
    assert "revoked" in refusal(world, "c", revoked)
    assert "wrong" in refusal(world, "c", "guessed")


@pytest.mark.parametrize("credential", ["", "short", "x" * 257])
def test_credential_that_could_be_guessed_is_refused(world: World, credential: str) -> None:
    token = invite(world)
    with pytest.raises(MusterError, match="too short or too long"):
        world.ask(
            lambda work, parts: join(
                work, parts[AgentLifecycle], JoinRequest(token, "c", "default", credential)
            )
        )


def test_credential_of_another_agent_is_not_taken_for_a_new_one(world: World) -> None:
    credential = "chosen by c".ljust(40, "-")
    world.join("c", credential=credential)
    with pytest.raises(MusterError, match="is that of another"):
        world.join("d", credential=credential)


def test_restarted_controller_knows_not_when_an_agent_spoke_until_it_speaks(world: World) -> None:
    agent = world.agent("a")
    world.run(500.0)
    assert seen_at(world, agent) == world.clock.now()
    agent.online = False
    world.restart_controller()
    assert seen_at(world, agent) is None
    world.connect(agent)
    assert seen_at(world, agent) == world.clock.now()


def seen_at(world: World, agent: DrivenAgent) -> float | None:
    """The moment at which the agent last spoke, as people are told."""
    live = world.plane.live
    return agent_view(live.agents[agent.id], live, world.plane.parts).seen_at
