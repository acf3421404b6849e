"""Each test gets a supervisor of its own, which must leave nothing behind."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.supervisor.accounts import ADA, BOB, Users
from tests.agent.supervisor.driver import Driver


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(tmp_path / "supervisor")
    try:
        yield driver
    finally:
        driver.close()


@pytest.fixture
def users() -> Iterator[Users]:
    place = Path(tempfile.mkdtemp(prefix="muster-users-", dir="/tmp"))
    place.chmod(0o711)
    try:
        yield Users(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)  # a spawner may be tidying up there as it ends


@pytest.fixture
def ada(users: Users) -> dict[str, Any]:
    return users.account(ADA)


@pytest.fixture
def bob(users: Users) -> dict[str, Any]:
    return users.account(BOB)
