"""A home for a cluster that a test starts as a person does."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster import assert_no_survivors, free_ports

from muster.app import local
from muster.app.home import Home, LocalProxy, Settings
from muster.app.local import down


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A home for a cluster; its processes are ended afterwards, and nothing is left behind.

    Clusters of tests beside it do not take its port while its controller is started again. It has
    no proxy, unless a test wishes one.
    """
    monkeypatch.setattr(local, "DEFAULT_PORT", free_ports(1)[0])
    home = Home(tmp_path / "home")
    home.create()
    home.write_settings(Settings(proxy=LocalProxy(is_started=False)))
    yield home
    down(home.path)
    assert_no_survivors(home.path)
