"""Worlds that close themselves."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from proving.hollow.supervisor import Behaviour, Run
from tests.control.moves import Moves, observed
from tests.control.strangers import install
from tests.control.world import World

from muster.control.engine.declared import SomePerformer
from muster.core.resources import Resources
from muster.core.specs import ScalingGroup
from muster.scheduling.accounting import usage

MakeWorld: TypeAlias = Callable[..., World]


def cpus(count: int) -> Resources:
    return Resources(cpu_milli=1000 * count, memory_bytes=64 * 2**30)


@pytest.fixture(autouse=True)
def only_lifecycles_move(monkeypatch: pytest.MonkeyPatch) -> Iterator[Moves]:
    """In each test, records whose entity has a lifecycle move by that alone."""
    with observed(monkeypatch) as moves:
        yield moves
    assert not moves.beside


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[MakeWorld]:
    """Makes worlds of the arguments of ``World``."""
    with ExitStack() as stack:
        numbers = itertools.count()

        def make(agents: Mapping[str, Resources], **options: Any) -> World:
            path = tmp_path / f"world-{next(numbers)}"
            path.mkdir()
            return stack.enter_context(closing(World(path, agents, **options)))

        yield make


def under(**policy: Any) -> ScalingGroup:
    """The group of all agents, under this policy."""
    return ScalingGroup.model_validate({"name": "default", **policy})


@pytest.fixture
def group_world(worlds: MakeWorld) -> MakeWorld:
    """A world with agents of so many CPUs each, under a policy."""

    def make(
        agents: dict[str, int],
        behaviour: Behaviour = lambda start: Run(),
        attributes: dict[str, dict[str, str]] | None = None,
        stand_ins: Sequence[SomePerformer] = (),
        **policy: Any,
    ) -> World:
        world = worlds({}, group=under(**policy), behaviour=behaviour, stand_ins=stand_ins)
        for name, count in agents.items():
            world.add_agent(name, cpus(count), attributes=(attributes or {}).get(name, {}))
        return world

    return make


@pytest.fixture
def strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Plug-ins are installed, as by an installer; the answer is the folder that says so."""
    metadata = install(tmp_path / "packages")
    monkeypatch.syspath_prepend(metadata.parent)
    return metadata


@pytest.fixture(autouse=True)
def any_priority(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users may give any priority, except where a test is about its limits."""
    if "limits_of_priority" not in request.fixturenames:
        monkeypatch.setattr(usage, "MAX_PRIORITY_OF_USER", 100)


@pytest.fixture
def limits_of_priority() -> None:
    """Users may give the priorities that they may give in a new cluster."""
