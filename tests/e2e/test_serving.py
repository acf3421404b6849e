"""A service of three replicas under load through HAProxy, while what it stands on is changed and
killed; etcd is told of it as well."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from demo.load import Load, Question
from tests.control.deployment.publishing.balancers import (
    Etcd,
    Haproxy,
    has,
    keys,
    needs_etcd,
    needs_haproxy,
)
from tests.e2e.cluster import Cluster, agent, processes_naming, started
from tests.patience import until

from muster.client import Client
from muster.core.states.deployment import EndpointLifecycle, RouteStatus
from muster.core.views.deployments import RouteView

pytestmark = [needs_haproxy, needs_etcd]
AGENTS = ("one", "two", "three")
CLIENTS = 6
REPLICAS = 3
AWAY_S = 1.0
"""How long the service has no controller."""
SETTLE_S = 60.0
"""An update replaces its replicas one by one: ten seconds, where nothing else runs."""
LOOK_EVERY_S = 0.1
"""Each look asks the controller, HAProxy and etcd, which need the processors themselves."""
SERVICE = {
    "kind": "deployment",
    "name": "echo",
    "command": "exec python3 -S serve.py",
    "files": {
        "serve.py": """
import http.server, os

class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer
server.request_queue_size = 100
server(("127.0.0.1", int(os.environ["PORT"])), Echo).serve_forever()
"""
    },
    "replicas": REPLICAS,
    "resources": {"cpu": 0.5},
    "probe": {"interval": "0.25", "timeout": 2},
    "update": {"min_healthy_time": "0.5"},
    "drain": 1,
    "access": "public",
}


@pytest.fixture
def haproxy(tmp_path: Path) -> Iterator[Haproxy]:
    made = Haproxy(tmp_path)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    place = tmp_path / "keys"
    place.mkdir()
    made = Etcd(place)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def cluster(tmp_path: Path, haproxy: Haproxy, etcd: Etcd) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "home", [agent(name, cpu_milli=2000) for name in AGENTS])
    balancers = {"haproxy": haproxy.keys, "etcd": {"endpoints": [etcd.url]}}
    (made.home.path / "traffic.yaml").write_text(json.dumps(balancers))
    with started(made, {"name": "default", "agent_silence": 1}):
        yield made


class Watched:
    """A deployment as the controller, HAProxy and etcd have it, and the load on it."""

    def __init__(self, client: Client, haproxy: Haproxy, etcd: Etcd, load: Load) -> None:
        self._client = client
        self._haproxy = haproxy
        self._etcd = etcd
        self._load = load

    def routes(self) -> list[RouteView]:
        return list(self._client.deployments.show("echo").routes)

    def settled(self, revision: int = 1, but: str = "") -> bool:
        """Whether there are three healthy replicas of a revision, none of them ``but``, and nothing
        else, and both HAProxy and etcd have them."""
        found = self._client.deployments.show("echo")
        names = [each.id for each in found.routes]
        return (
            found.status is EndpointLifecycle.READY
            and found.stable == revision
            and found.rollout is None
            and [each.revision for each in found.routes] == [revision] * REPLICAS
            and all(each.status is RouteStatus.HEALTHY for each in found.routes)
            and but not in names
            and has(self._haproxy, names)
            and keys(self._etcd).keys() == {f"/muster/routes/echo/{name}" for name in names}
        )

    def settles(self, revision: int = 1, but: str = "") -> None:
        """Wait until it is ``settled``."""
        until(lambda: self.settled(revision, but), SETTLE_S, LOOK_EVERY_S)

    @contextmanager
    def loses(self, most: int) -> Iterator[None]:
        """No more than so many requests fail, of those that begin in this."""
        began_s = time.monotonic()
        yield
        ended_s = time.monotonic()
        until(lambda: self._load.account(ended_s).requests > 2 * CLIENTS)  # earlier ones have ended
        account = self._load.account(began_s, ended_s)
        assert account.requests > 4 * CLIENTS, "there was load"
        assert account.failed <= most, account


def agent_of(client: Client, route: RouteView) -> str:
    """The agent of a replica."""
    [kernel] = client.session(str(route.session)).kernels
    return str(kernel.agent)


def kernel_of(cluster: Cluster, route: RouteView) -> int:
    """The process of a replica."""
    session = f"MUSTER_SESSION_ID={route.session}".encode()
    [pid] = [
        pid
        for pid, command, environment in processes_naming(cluster.home.path)
        if session in environment and b"serve.py" in command
    ]
    return pid


@pytest.mark.timeout(300)  # two starts of a controller take long, where much else runs
def test_service_answers_while_it_is_updated_and_its_parts_are_killed(
    cluster: Cluster, haproxy: Haproxy, etcd: Etcd
) -> None:
    questions = [Question(b"ping", b"ping")]
    with cluster.client() as client, Load(haproxy.port, "/echo/", questions) as load:
        client.deploy(SERVICE)
        watched = Watched(client, haproxy, etcd, load)
        watched.settles()
        load.be(CLIENTS)

        with watched.loses(0):
            client.deploy({**SERVICE, "env": {"REVISION": "2"}})
            watched.settles(2)

        killed = watched.routes()[-1]
        with watched.loses(CLIENTS):  # those that it had begun
            os.kill(kernel_of(cluster, killed), signal.SIGKILL)
            watched.settles(2, but=killed.id)

        lost = watched.routes()[-1]
        with watched.loses(CLIENTS):
            cluster.lose(agent_of(client, lost))
            watched.settles(2, but=lost.id)

        with watched.loses(0):
            cluster.kill_controller()
            time.sleep(AWAY_S)
            cluster.start_controller()
            cluster.running()
            watched.settles(2)
