"""A world under the queries that people's requests make, and a connection for them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection
from tests.control.world import World

from muster.core.resources import Resources


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """One agent that runs two kernels of one processor at a time, for a second each."""
    world = World(tmp_path, {"a1": Resources(cpu_milli=2000, memory_bytes=2**30)})
    yield world
    world.close()


@pytest.fixture
def connection(world: World) -> Iterator[Connection]:
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        yield connection
