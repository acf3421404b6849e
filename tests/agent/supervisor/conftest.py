"""Each test gets a supervisor of its own, which must leave nothing behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.supervisor.driver import Driver


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(tmp_path / "supervisor")
    try:
        yield driver
    finally:
        driver.close()
