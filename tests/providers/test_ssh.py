"""The provider ``ssh`` does what every provider must do, with OpenSSH's server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.providers.conformance import Conformance, Site
from tests.providers.sshd import SSHD, Hosts

from muster.providers import starting
from muster.providers.provider import Provider

pytestmark = pytest.mark.skipif(SSHD is None, reason="OpenSSH's server is not installed")


class Rack(Site):
    """Hosts, all of which any pool may have."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts

    def provider(self, pool: str = "one", cluster: str = "c-1") -> Provider:
        return self._hosts.provider(pool, cluster)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(starting, "PAUSE_S", 0.1)
    with Hosts(tmp_path, 3) as hosts:
        yield Rack(hosts)


class TestSshHosts(Conformance):
    pass
