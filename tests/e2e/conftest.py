"""A home for a cluster that a test starts as a person does."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster import assert_no_survivors

from muster.app.home import Home
from muster.app.local import down


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home for a cluster; its processes are ended afterwards, and nothing is left behind."""
    home = Home(tmp_path / "home")
    yield home
    down(home.path)
    assert_no_survivors(home.path)
