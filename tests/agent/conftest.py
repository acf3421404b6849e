"""Fixtures of the tests of agents."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.running import shut_down_supervisor


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """An agent's directory; its supervisor, and all that runs under it, is gone afterwards."""
    path = tmp_path / "agent"
    yield path
    if path.exists():
        shut_down_supervisor(path)
