"""The proxy that `muster up` starts: kept alive, stopped, taken elsewhere, wished away."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.e2e.cluster import client_of, free_ports
from tests.patience import until

from muster.agent.supervisor import lock_file
from muster.app import local
from muster.app.doctor import checks
from muster.app.home import Home
from muster.app.keeper import keeper_of
from muster.app.local import UpOptions, down, up
from muster.app.proxy_config import RunningProxy, proxy_directory, running_proxy
from muster.app.proxy_keeper import KEEPER_LOCK_FILE
from muster.core.errors import Conflict, MusterError

MUSTER = Path(sys.executable).with_name("muster")
SERVICE = {
    "kind": "deployment",
    "name": "web",
    "command": "exec python3 -m http.server $PORT --bind 127.0.0.1",
    "replicas": 1,
    "probe": {"path": "/", "interval": 1, "timeout": 1},
    "access": "public",
}


@pytest.fixture
def proxy_port(monkeypatch: pytest.MonkeyPatch) -> int:
    """The port at which proxies of this test begin to look for a free one."""
    (port,) = free_ports(1)
    monkeypatch.setattr(local, "PROXY_PORT", port)
    return port


def proxy_of(home: Home) -> RunningProxy:
    """The proxy of a home, once it listens."""
    return until(lambda: running_proxy(proxy_directory(home)))


def status(url: str) -> int:
    try:
        return httpx.get(url, timeout=5).status_code
    except httpx.TransportError:
        return 0


def check(home: Home, name: str) -> tuple[bool | None, str]:
    return next((each.ok, each.detail) for each in checks(home.path) if each.name == name)


def test_services_are_reached_while_controller_and_proxy_are_killed(
    home: Home, proxy_port: int
) -> None:
    report = up(UpOptions(home.path, agents=1, proxy=True))
    first = proxy_of(home)
    assert report.parts.proxy == first.url == f"http://127.0.0.1:{first.port}"
    assert check(home, "proxy") == (True, f"{first.url} (process {first.pid})")
    url = f"{first.url}/web/"
    with client_of(home) as cluster:
        assert until(lambda: cluster.health().proxies) == (first.url,)
        cluster.deploy(SERVICE)
        until(lambda: status(url) == 200, 60)
    said = subprocess.run(
        [MUSTER, "open", "web", "--wait", "--home", home.path],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert said.stdout == f"{url}\n"
    with client_of(home) as cluster:
        (load,) = until(lambda: [each.load for each in cluster.loads() if each.load.recent])
        assert load.p99_s is not None

    os.kill(first.pid, signal.SIGKILL)
    until(lambda: proxy_of(home).pid != first.pid)
    second = proxy_of(home)
    assert second.url == first.url
    until(lambda: status(url) == 200)

    os.kill(report.pid, signal.SIGKILL)
    assert status(url) == 200, "with the controller away"
    until(lambda: (running := home.running()) is not None and running.pid != report.pid)
    with client_of(home) as cluster:
        assert until(lambda: cluster.health().proxies) == (first.url,)
    assert proxy_of(home) == second, "it went on"

    down(home.path)
    assert running_proxy(proxy_directory(home)) is None
    assert not (proxy_directory(home) / "proxy.json").exists()


def test_proxy_that_dies_while_the_controller_is_away_runs_again_until_down(
    home: Home, proxy_port: int
) -> None:
    up(UpOptions(home.path, agents=0, proxy=True))
    process = proxy_of(home).pid
    keeper, controller = keeper_of(home), home.running()
    assert keeper is not None
    assert controller is not None
    os.kill(keeper, signal.SIGKILL)
    os.kill(controller.pid, signal.SIGKILL)
    until(lambda: not home.is_running())
    assert proxy_of(home).pid == process

    os.kill(process, signal.SIGKILL)
    until(lambda: proxy_of(home).pid != process)
    assert proxy_of(home).port == proxy_port
    down(home.path)
    assert running_proxy(proxy_directory(home)) is None
    assert not lock_file.is_held(proxy_directory(home) / KEEPER_LOCK_FILE)


def test_proxy_whose_keeper_is_killed_goes_on_and_gets_another_keeper(
    home: Home, proxy_port: int
) -> None:
    up(UpOptions(home.path, agents=0, proxy=True))
    proxy, lock = proxy_of(home), proxy_directory(home) / KEEPER_LOCK_FILE
    keeper = until(lambda: lock_file.holder_of(lock))
    os.kill(keeper, signal.SIGKILL)
    until(lambda: lock_file.holder_of(lock) not in (None, keeper))
    assert proxy_of(home) == proxy
    os.kill(proxy.pid, signal.SIGKILL)
    until(lambda: proxy_of(home).pid != proxy.pid)
    down(home.path)
    assert running_proxy(proxy_directory(home)) is None


def test_proxy_that_is_no_longer_wished_ends_with_its_keeper(home: Home, proxy_port: int) -> None:
    up(UpOptions(home.path, agents=0, proxy=True))
    proxy_of(home)
    keeper, controller = keeper_of(home), home.running()
    assert keeper is not None
    assert controller is not None
    os.kill(keeper, signal.SIGKILL)
    os.kill(controller.pid, signal.SIGKILL)
    until(lambda: not home.is_running())
    up(UpOptions(home.path, agents=0, proxy=False))
    until(lambda: not lock_file.is_held(proxy_directory(home) / KEEPER_LOCK_FILE))
    assert running_proxy(proxy_directory(home)) is None


def test_port_that_is_taken_is_passed_over_and_a_chosen_one_is_told(
    home: Home, proxy_port: int
) -> None:
    with socket.create_server(("127.0.0.1", proxy_port)):
        parts = up(UpOptions(home.path, agents=0, proxy=True)).parts
        assert parts.trouble is None
        assert proxy_of(home).port > proxy_port
        down(home.path)

        said = subprocess.run(
            [MUSTER, "up", "--agents", "0", "--proxy-port", str(proxy_port), "--home", home.path],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        why = f"cannot listen on 127.0.0.1:{proxy_port}: another program uses it"
        assert "warning: deployments have no proxy: the proxy ended with exit code 1" in said.stderr
        assert why in said.stderr
        assert "--proxy-port" in said.stderr
        with client_of(home) as cluster:
            assert cluster.health().status == "degraded"
            assert why in (cluster.cluster().trouble or "")
        assert check(home, "proxy")[0] is False
        assert why in check(home, "controller")[1]
    assert proxy_of(home).port == proxy_port, "it is tried again, and the port is free now"
    down(home.path)
    assert home.settings().proxy.port == proxy_port, "it was chosen"


def test_second_up_and_second_proxy_are_refused(home: Home, proxy_port: int) -> None:
    up(UpOptions(home.path, agents=0, proxy=True))
    proxy = proxy_of(home)
    with pytest.raises(Conflict, match="--proxy-port 1 --no-proxy was not applied"):
        up(UpOptions(home.path, proxy=False, proxy_port=1))
    again = subprocess.run(
        [MUSTER, "proxy", "--port", "0", "--home", home.path],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert again.returncode == 1
    assert f"runs on {proxy_directory(home)} already (process {proxy.pid})" in again.stderr
    assert proxy_of(home) == proxy


def test_proxy_that_is_not_wished_is_not_started_until_it_is(home: Home, proxy_port: int) -> None:
    with pytest.raises(MusterError, match="contradict each other"):
        up(UpOptions(home.path, agents=0, proxy=False, proxy_port=1))
    assert not home.is_running()
    for wished in (False, None):  # the choice is kept
        report = up(UpOptions(home.path, agents=0, proxy=wished))
        assert report.parts.proxy is None
        assert report.parts.trouble is None
        assert check(home, "proxy")[0] is None
        assert not proxy_directory(home).exists()
        down(home.path)
    up(UpOptions(home.path, agents=0, proxy_port=proxy_port))
    assert proxy_of(home).port == proxy_port


def test_up_names_the_proxy(home: Home, proxy_port: int) -> None:
    said = subprocess.run(
        [MUSTER, "up", "--agents", "0", "--proxy-port", str(proxy_port), "--home", home.path],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert f"Its proxy serves deployments at http://127.0.0.1:{proxy_port}.\n" in said.stdout
