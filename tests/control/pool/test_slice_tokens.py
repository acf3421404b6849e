"""The join token of a slice: for its own machines, until it is READY."""

import re
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.control.pool_scenarios import job, pool
from tests.control.world import ROOT, World

from muster.control.agent.joining import JoinRefused
from muster.control.identity.tokens import invitations, revoke_join_token
from muster.control.pool.fleet import Fleet
from muster.control.pool.queries import list_pools, list_slices
from muster.core.errors import NotFound
from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.core.states import AgentStatus, TaskState
from muster.core.states.slice import SliceStatus
from muster.store import schema
from muster.store.queries.listing import Listing


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A pool with a slice of two machines that do not boot by themselves."""
    world = World(tmp_path, {})
    world.farm.boot_s = 1e6
    world.apply(pool(min_slices=1, slice_size=2, attributes={"zone": "a"}))
    world.run(1)
    return world


def test_token_is_good_for_the_machines_of_its_slice_and_its_group_alone(world: World) -> None:
    (slice_,) = world.slices()
    with pytest.raises(JoinRefused, match="for the machines of a slice, which have other names"):
        world.join("stranger", slice_.secret)
    with pytest.raises(JoinRefused, match="is for group default"):
        world.join(slice_.names[0], slice_.secret, group="other")
    joined = world.join(slice_.names[0], slice_.secret)
    assert joined.attributes["slice"] == slice_.id
    world.close()


def test_token_ends_once_the_slice_is_ready(world: World) -> None:
    (slice_,) = world.slices()
    secret = slice_.secret
    world.farm.boot_s = 0.0
    for machine in world.farm.machines.values():
        machine.boots_at = world.clock.now()
    world.run(30)
    assert slice_.status is SliceStatus.READY
    assert slice_.secret == ""
    with pytest.raises(JoinRefused, match="wrong, used up, expired or revoked"):
        world.join(slice_.names[0], secret)
    world.close()


def test_token_ends_once_the_slice_is_gone(world: World) -> None:
    (slice_,) = world.slices()
    secret = slice_.secret
    world.run(1_000)  # none joins within its boot_timeout
    assert slice_.status is SliceStatus.FAILED
    assert slice_.reason is not None
    assert slice_.reason.code is ReasonCode.SLICE_NOT_BOOTED
    with pytest.raises(JoinRefused):
        world.join(slice_.names[0], secret)
    world.close()


def test_attributes_of_the_pool_win_over_those_that_a_machine_tells(world: World) -> None:
    (slice_,) = world.slices()
    record = world.join(slice_.names[0], slice_.secret)
    shape = slice_.spec.machine
    told = {"pool": "gpu", "slice": "slc-other", "preemptible": "true", "rack": "r1"}
    world._run_agent(record, shape.capacity(0), shape.devices, told)
    world.run(1)
    agent = world.plane.live.agents[record.id]
    assert agent.status is AgentStatus.ALIVE
    assert agent.attributes == {
        "pool": "cpu",
        "slice": slice_.id,
        "preemptible": "false",
        "zone": "a",
        "rack": "r1",
    }
    world.close()


def test_agent_that_joined_with_another_token_is_not_taken_for_a_machine_of_a_pool(
    world: World,
) -> None:
    """Its claims lead no work to it, and it is counted for no slice."""
    (slice_,) = world.slices()
    claims = {"pool": "cpu", "slice": slice_.id, "preemptible": "false"}
    world.add_agent("mallorys", Resources(16_000, 2**36), attributes={**claims, "rack": "r1"})
    rules = [{"constraints": [f"{name}={value}"]} for name, value in claims.items()]
    wanted = [world.submit(job(f"one-{at}", placement=rule)) for at, rule in enumerate(rules)]
    world.run(60)
    impostor = world.plane.live.agent_names["mallorys"]
    assert impostor.status is AgentStatus.ALIVE
    assert impostor.attributes == {"rack": "r1"}
    assert {task.status for each in wanted for task in each.tasks.values()} == {TaskState.PENDING}
    assert not world.plane.live.allocations_on.get(impostor.id)
    assert world.plane.parts[Fleet].agents(slice_) == {}
    world.close()


def test_token_is_in_no_view_history_or_representation(world: World) -> None:
    (slice_,) = world.slices()
    secret = slice_.secret
    assert len(secret) > 20
    with world.store.engine.connect() as connection:
        shown = [
            *map(repr, list_slices(connection, ROOT, Listing()).items),
            *map(repr, list_pools(connection, ROOT, Listing()).items),
            *map(repr, connection.execute(select(schema.history))),
            repr(slice_),
        ]
    assert len(shown) > 4
    assert not [text for text in shown if re.search(re.escape(secret), text)]
    world.close()


def test_token_is_no_invitation_that_people_see_or_revoke(world: World) -> None:
    (slice_,) = world.slices()
    live = world.plane.live
    assert live.accounts.join_tokens.of_secret(slice_.secret) is not None
    assert not [each for each in invitations(live.accounts) if each.names]
    with pytest.raises(NotFound):
        world.ask(lambda work, _: revoke_join_token(work, slice_.id))
    assert live.accounts.join_tokens.of_secret(slice_.secret) is not None
    world.close()
