"""Machines of a hollow world come and go as an operator would have it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from proving.hollow.agent_twin import Offer
from proving.hollow.supervisor import Run
from proving.hollow.world import World

from muster.core.resources import Resources
from muster.store.database import open_engine, sqlite_url

OFFER = Offer(Resources(cpu_milli=1000, memory_bytes=2**30))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    url = sqlite_url(tmp_path / "muster.db")
    world = World(tmp_path, lambda: open_engine(url), lambda start: Run())
    world.begin({"a": OFFER})
    world.run(1.0)
    yield world
    world.close()


def test_machine_whose_name_is_taken_joins_once_it_is_free_and_undoes_no_wake_before(
    world: World,
) -> None:
    mirror, former = world.store.live, world.agents["a"].identity
    assert former is not None
    world.replace_machine(world.agents["a"], after_s=0.0)
    fresh = world.agents["a"]
    world.run(5.0)
    assert fresh.identity is None
    assert fresh.credential is not None  # it has asked
    world.run_until(lambda: fresh.identity is not None, 600.0)
    assert fresh.identity != former
    assert world.store.live is mirror


def test_controller_that_has_looked_at_nothing_yet_is_not_idle(world: World) -> None:
    world.kill_controller()
    world.start_controller()
    assert world.controller is not None
    assert not world.controller.is_idle
    world.run(1.0)
    assert world.controller.is_idle
