"""Worlds that close themselves."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.control.hollow_agent import Behaviour, Run
from tests.control.strangers import install
from tests.control.world import World

from muster.core.resources import Resources
from muster.core.specs import ScalingGroup

GroupWorld: TypeAlias = Callable[..., World]


def cpus(count: int) -> Resources:
    return Resources(cpu_milli=1000 * count, memory_bytes=64 * 2**30)


@pytest.fixture
def group_world(tmp_path: Path) -> Iterator[GroupWorld]:
    """A world with agents of so many CPUs each, under a policy."""
    worlds: list[World] = []

    def make(
        agents: dict[str, int],
        behaviour: Behaviour = lambda start: Run(),
        attributes: dict[str, dict[str, str]] | None = None,
        **policy: Any,
    ) -> World:
        group = ScalingGroup.model_validate({"name": "default", **policy})
        world = World(tmp_path, {}, group=group, behaviour=behaviour)
        worlds.append(world)
        for name, count in agents.items():
            world.add_agent(name, cpus(count), attributes=(attributes or {}).get(name, {}))
        return world

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Plug-ins are installed, as by an installer; the answer is the folder that says so."""
    metadata = install(tmp_path / "packages")
    monkeypatch.syspath_prepend(metadata.parent)
    return metadata
