"""A kernel listens on the port of another user's replica, to get the prompts that are meant for
it."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx
import pytest
from tests.attacks.target import Target
from tests.patience import until

from muster.agent.port_rules import find_nft
from muster.app.proxy_config import dump_proxy, proxy_beside, running_proxy
from muster.client import Client
from muster.core.reasons import ReasonCode
from muster.core.states.deployment import RouteStatus
from muster.core.views.deployments import RouteView

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root runs kernels as their owners")

REPLICA = {
    "kind": "deployment",
    "resources": {"cpu": "10m"},
    "probe": {"interval": "0.25", "timeout": 1, "evict_after": 600, "healthy_threshold": 1},
    "drain": 0,
}
ASKS = r"""
import socket, sys
try:
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
    connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
    print(connection.recv(15))
except OSError as error:
    print(type(error).__name__)
"""
SERVES = "exec python3 -I -S -m http.server --bind 127.0.0.1 $PORT"
THIEF = r"""
import http.server, socket, sys
class Thief(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"stolen")
class Server(http.server.ThreadingHTTPServer):
    allow_reuse_address = True
    def server_bind(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()
    def server_activate(self):
        super().server_activate()
        print("listens", flush=True)
Server((sys.argv[1], int(sys.argv[2])), Thief).serve_forever()
"""
GUARDED = r"""
import hmac, http.server, os
class Guarded(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        sent = self.headers.get("Muster-Secret", "").encode()
        proven = hmac.compare_digest(sent, os.environ["MUSTER_SECRET"].encode())
        self.send_response(200 if proven else 403)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Guarded).serve_forever()
"""
TRIED_S = 3.0
"""Seconds for which a thief is watched: it was HEALTHY after 1 to 2."""


def steal(mallory: Client, route: RouteView, address: str = "127.0.0.1") -> str:
    """Have a kernel of mallory's listen on a replica's port; its job."""
    port = str(route.address).rpartition(":")[2]
    job = mallory.submit(command=["python3", "-I", "-S", "-c", THIEF, address, port])
    assert next(iter(mallory.logs(job.id, follow=True))).startswith(b"listens\n")
    return job.id


def replica(ada: Client, name: str, *statuses: RouteStatus) -> RouteView:
    """The replica of a deployment, once its session runs, and it is in one of these statuses."""

    def found() -> RouteView | None:
        there = [each for each in ada.routes(deployment=name) if each.address]
        return next((each for each in there if not statuses or each.status in statuses), None)

    return until(found)


def test_port_of_a_replica_that_loads_is_of_no_use_to_a_thief(target: Target) -> None:
    with target.client("mallory") as mallory, target.client("ada") as ada:
        ada.deploy({**REPLICA, "name": "loads", "command": ["sleep", "600"]})
        job = steal(mallory, replica(ada, "loads"))
        statuses: set[str] = set()
        until_s = time.monotonic() + TRIED_S
        while time.monotonic() < until_s:
            statuses |= {each.status for each in ada.routes("all", deployment="loads")}
            time.sleep(0.05)
        taken = [each.reason for each in ada.routes("all", deployment="loads")]
        mallory.cancel(job)
        ada.cancel("loads")
    assert RouteStatus.HEALTHY not in statuses
    assert ReasonCode.ROUTE_PORT_TAKEN in [each.code for each in taken if each is not None]


def test_thief_at_another_address_of_the_port_takes_a_replica_out_of_traffic(
    target: Target,
) -> None:
    with target.client("mallory") as mallory, target.client("ada") as ada:
        ada.deploy({**REPLICA, "name": "serves", "command": SERVES})
        route = replica(ada, "serves", RouteStatus.HEALTHY)
        job = steal(mallory, route, "127.0.0.2")
        replica(ada, "serves", RouteStatus.UNHEALTHY)
        why = ada.why(route.id)
        mallory.cancel(job)
        replica(ada, "serves", RouteStatus.HEALTHY)
        ada.cancel("serves")
    assert [each.code for each in why.reasons] == [ReasonCode.ROUTE_PORT_TAKEN]


@pytest.mark.skipif(find_nft() is None, reason="ports are open to others where nft is missing")
def test_private_replica_is_not_reached_around_the_proxy(target: Target) -> None:
    with target.client("mallory") as mallory, target.client("ada") as ada:
        ada.deploy({**REPLICA, "name": "alone", "command": SERVES, "access": "owner"})
        port = str(replica(ada, "alone", RouteStatus.HEALTHY).address).rpartition(":")[2]
        answers = []
        for client in (mallory, ada):
            job = client.submit(command=["python3", "-I", "-S", "-c", ASKS, port])
            client.wait(job.id)
            answers.append(b"".join(client.logs(job.id)).decode().strip())
        ada.cancel("alone")
    assert answers == ["ConnectionRefusedError", "b'HTTP/1.0 200 OK'"]


@contextmanager
def proxy_of(target: Target) -> Iterator[str]:
    """A proxy of the cluster's own, and its URL."""
    config = proxy_beside(target.cluster.home, port=0)
    config.directory.mkdir(mode=0o700, exist_ok=True)
    command = [sys.executable, "-P", "-m", "muster.app.proxy_process"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdin is not None
        process.stdin.write(dump_proxy(config))
        process.stdin.close()
        running = until(lambda: running_proxy(config.directory))
        yield running.url
    finally:
        process.terminate()
        process.wait(20)


def test_program_knows_requests_of_the_proxy_from_those_around_it(target: Target) -> None:
    """Nothing keeps its port from its owner's other kernels."""
    guarded = {"name": "guarded", "command": ["python3", "-I", "-S", "-c", GUARDED]}
    with target.client("ada") as ada, proxy_of(target) as url:
        ada.deploy({**REPLICA, **guarded, "access": "owner"})
        port = str(replica(ada, "guarded", RouteStatus.HEALTHY).address).rpartition(":")[2]
        around = ["sh", "-c", 'env | grep -c ^MUSTER_SECRET=; exec python3 -I -S -c "$0" $1']
        job = ada.submit(command=[*around, ASKS, port])
        ada.wait(job.id)
        asked = b"".join(ada.logs(job.id)).decode().split("\n")
        headers = {"Authorization": f"Bearer {target.tokens['ada']}", "Muster-Secret": "guessed"}
        through = until(lambda: _status(f"{url}/guarded/", headers))
        ada.cancel("guarded")
    assert asked[:2] == ["0", "b'HTTP/1.0 403 Fo'"]
    assert through == 200


def _status(url: str, headers: Mapping[str, str]) -> int | None:
    """The status of an answer by a replica; None while the proxy knows none."""
    answer = httpx.get(url, headers=headers, timeout=20)
    return None if answer.status_code in (404, 503) else answer.status_code
