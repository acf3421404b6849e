"""Deployments whose programs listen on one fixed port, on a machine with two agents."""

from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.e2e.cluster import Cluster, agent, free_ports, started
from tests.patience import until

from muster.client import Client
from muster.core.reasons import ReasonCode
from muster.core.states.deployment import RouteStatus


def service(name: str, port: int, **keys: Any) -> dict[str, Any]:
    """A deployment that answers its name, and dies if it cannot listen."""
    return {
        "kind": "deployment",
        "name": name,
        "command": f'echo "$MUSTER_DEPLOYMENT" > index.html; exec python3 -m http.server {port}',
        "port": port,
        "resources": {"cpu": 0.5},
        "probe": {"interval": "0.25", "timeout": 1},
        "update": {"surge": 0, "min_healthy_time": "0.5"},
        "drain": 0,
        "access": "public",
        **keys,
    }


def statuses(client: Client, name: str) -> list[RouteStatus]:
    return sorted(each.status for each in client.deployments.show(name).routes)


def wait_for_port(client: Client, name: str) -> bool:
    return ReasonCode.PORT_TAKEN in {each.code for each in client.why(name).reasons}


def test_port_is_one_replicas_on_a_machine_whatever_agents_it_has(tmp_path: Path) -> None:
    [port] = free_ports(1)
    cluster = Cluster(tmp_path / "home", [agent(name, cpu_milli=4000) for name in ("one", "two")])

    def answer() -> str:
        with urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answered:
            return str(answered.read().decode().strip())

    def healthy(revision: int) -> bool:
        routes = client.deployments.show("first").routes
        return any((r.status, r.revision) == (RouteStatus.HEALTHY, revision) for r in routes)

    with started(cluster), cluster.client() as client:
        client.deploy(service("first", port, replicas=2))
        until(lambda: statuses(client, "first") == [RouteStatus.HEALTHY, RouteStatus.PROVISIONING])
        until(lambda: wait_for_port(client, "first"))
        assert len(cluster.kernels()) == 1

        client.deploy(service("first", port, replicas=1))
        client.deploy(service("first", port, replicas=1, env={"REVISION": "2"}))
        until(lambda: healthy(2) and len(client.deployments.show("first").routes) == 1)

        # An agent that comes back finds the reservation again, and the other one still refuses.
        for name in cluster.agents:
            cluster.kill_agent(name)
            cluster.start_agent(name)
        until(lambda: [each.status for each in client.agents()] == ["ALIVE"] * 2)
        client.deploy(service("second", port))
        until(lambda: wait_for_port(client, "second"))
        assert len(cluster.kernels()) == 1
        assert answer() == "first"

        client.cancel("first")
        until(lambda: statuses(client, "second") == [RouteStatus.HEALTHY])
        assert len(cluster.kernels()) == 1
        assert answer() == "second"
