"""Agents whose machines have changed: history tells what is there no more, and what is new."""

from dataclasses import replace

from sqlalchemy import select
from tests.control.conftest import MakeWorld
from tests.control.world import World

from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.store import schema
from muster.store.stored_values import load_reasons

EIGHT = Resources(cpu_milli=8000, memory_bytes=2**36)


def told(world: World) -> list[str]:
    """The sentences of history about changes of the agent's machine."""
    history = schema.history.c
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        stored = connection.scalars(select(history.reasons).order_by(history.seq)).all()
    reasons = [each for text in stored if text for each in load_reasons(text)]
    return [each.sentence() for each in reasons if each.code is ReasonCode.AGENT_OFFERS_OTHER]


def world_of(worlds: MakeWorld) -> World:
    world = worlds({})
    world.add_agent("a", EIGHT, gpus=2, attributes={"rack": "r1", "zone": "a"})
    world.settle()
    return world


def come_back(world: World, **offer: object) -> None:
    agent = world.agent("a")
    agent.offer = replace(agent.offer, **offer)  # type: ignore[arg-type]
    world.disconnect(agent)
    world.connect(agent)


def test_lost_gpus_and_changed_attributes_are_told(worlds: MakeWorld) -> None:
    world = world_of(worlds)
    assert told(world) == [], "with its first Hello everything is new"
    first, _ = world.agent("a").offer.devices
    come_back(world, devices=(first,), attributes={"rack": "r2"})
    (said,) = told(world)
    assert said.startswith("its machine has changed: ")
    assert "rack: r1 → r2" in said
    assert "zone: a → none" in said
    assert "GPU 1: " in said
    assert "GPU 0" not in said
    world.run(61)
    come_back(world, capacity=Resources(cpu_milli=4000, memory_bytes=2**36))
    assert told(world)[1:] == ["its machine has changed: cpu: 8 → 4"]
    come_back(world)
    world.restart_controller()
    assert len(told(world)) == 2, "nothing has changed since"


def test_agent_that_says_another_thing_each_time_costs_one_row_a_minute(
    worlds: MakeWorld,
) -> None:
    world = world_of(worlds)
    for rack in range(5):
        come_back(world, attributes={"rack": f"r{rack}", "zone": "a"})
    assert told(world) == ["its machine has changed: rack: r1 → r0"]
    world.run(61)
    come_back(world)
    assert told(world)[1:] == ["its machine has changed: rack: r0 → r4"]
