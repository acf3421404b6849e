"""A replica on a machine that the controller cannot reach, which its agent probes."""

import os
import signal
from pathlib import Path

from tests.e2e.cluster import Cluster, agent, started
from tests.patience import until

from muster.core.reasons import ReasonCode
from muster.core.states.deployment import RouteStatus

NOBODYS = "192.0.2.77"  # RFC 5737; a name would have to be looked up outside
SERVICE = {
    "kind": "deployment",
    "name": "far",
    "command": 'exec python3 -m http.server --bind 127.0.0.1 "$PORT"',
    "replicas": 1,
    "resources": {"cpu": 0.5},
    "probe": {"interval": "0.25", "timeout": 1, "unhealthy_threshold": 2, "evict_after": 600},
    "access": "public",
}


def test_agent_probes_what_the_controller_does_not_reach(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "home", [agent("one", cpu_milli=2000, host=NOBODYS)])
    with started(cluster), cluster.client() as client:
        client.deploy(SERVICE)

        def statuses() -> list[RouteStatus]:
            return [each.status for each in client.deployments.show("far").routes]

        until(lambda: statuses() == [RouteStatus.HEALTHY])
        (route,) = client.deployments.show("far").routes
        (why,) = client.why(route.id).reasons
        assert why.code == ReasonCode.ROUTE_SEEN_BY_AGENT
        cluster.kill_agent("one")
        cluster.start_agent("one")  # it is ordered anew, and finds out what happens meanwhile
        servers = cluster.kernels()
        assert servers
        for pid in servers:
            os.kill(pid, signal.SIGSTOP)
        until(lambda: statuses() == [RouteStatus.UNHEALTHY])
        for pid in servers:
            os.kill(pid, signal.SIGCONT)
        until(lambda: statuses() == [RouteStatus.HEALTHY])
