"""Worlds with toy entities alone."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.control.engine.toy import Door, ToyWorld

from muster.control.engine.handler import Handler

MakeWorld = Callable[..., ToyWorld]


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[MakeWorld]:
    worlds: list[ToyWorld] = []

    def make(*handlers: Handler[Door]) -> ToyWorld:
        worlds.append(ToyWorld(tmp_path, *handlers))
        return worlds[-1]

    yield make
    for world in worlds:
        world.store.close()
