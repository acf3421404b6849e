"""Executables of tests for the provider ``script``, and what is shared about them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from tests.patience import until
from tests.providers.conformance import SHAPE, Site

from muster.autoscaling.standing import MAX_TOLD
from muster.core.specs.pool import PoolSpec
from muster.providers.provider import ProviderError, Scope
from muster.providers.script.executable import Script

Writer = Callable[..., Script]
"""A function that makes the provider of an executable with a shell line."""


def spec(*command: str, **settings: object) -> PoolSpec:
    return PoolSpec.model_validate(
        {
            "name": "one",
            "provider": "script",
            "machine": SHAPE,
            "max_slices": 4,
            "settings": {"command": list(command), **settings},
        }
    )


@contextmanager
def writing(tmp_path: Path) -> Iterator[Callable[..., Script]]:
    """Makes the provider of an executable with this shell line; nothing of it runs afterwards."""
    tag = f"MUSTER_TEST={tmp_path}"

    def write(line: str, **settings: object) -> Script:
        program = tmp_path / "provider"
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
        variables = {"MUSTER_TEST": str(tmp_path)}
        made = spec(str(program), **{"environment": variables, "timeout": 20} | settings)
        return Script(made, Scope("c-1", "one", tmp_path / "own"))

    yield write
    until(lambda: not [pid for pid in psutil.pids() if tag in _environment(pid)])


def _environment(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/environ").read_text(errors="replace")
        return [] if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE else text.split("\0")
    except (OSError, psutil.NoSuchProcess):
        return []


def refusal(function: Callable[..., object], *given: object) -> ProviderError:
    with pytest.raises(ProviderError) as refused:
        function(*given)
    assert len(refused.value.told) <= MAX_TOLD
    assert refused.value.told.isprintable()
    return refused.value


GOOD = Path(__file__).with_name("good_provider.py")


class ScriptSite(Site):
    """The world of a good executable is a file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._world = directory / "world.json"

    def provider(self, pool: str = "one", cluster: str = "c-1") -> Script:
        made = spec(sys.executable, "-I", "-S", str(GOOD), str(self._world))
        return Script(made, Scope(cluster, pool, self._directory / "own"))


ORDER = ScriptSite(Path("/")).order(machines=1)
MACHINE = '{"id": "i-1", "name": "sl-1-0", "state": "running"}'
