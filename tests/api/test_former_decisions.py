"""The autoscaler over HTTP, as a controller answers that has decided nothing yet."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.served import ADA, ADMIN, ServedCluster

from muster.core.owner import Owner, Role

pytestmark = pytest.mark.usefixtures("many_cpus")

POOL = {
    "kind": "pool",
    "name": "cpu",
    "provider": "local",
    "machine": {"cpu": 4, "memory": "1GiB"},
    "max_slices": 4,
}
JOB = {"command": ["x"], "resources": {"cpu": 4, "memory": "1MiB"}, "tasks": 2}


def ask(
    cluster: ServedCluster, owner: Owner, role: Role, method: str, path: str, **rest: Any
) -> Any:
    headers = {"Authorization": f"Bearer {cluster.token(owner, role)}"}
    answer = httpx.request(method, cluster.url + path, headers=headers, **rest)
    assert answer.is_success, answer.text
    return answer.json()


def shown(cluster: ServedCluster) -> Any:
    (group,) = ask(cluster, ADA, Role.USER, "GET", "/v1/autoscaler")["items"]
    return group


def test_last_decision_is_shown_by_a_controller_that_has_made_none(tmp_path: Path) -> None:
    cluster = ServedCluster(tmp_path, {})
    cluster.farm.boot_s = 1e6
    cluster.start()
    try:
        ask(cluster, ADMIN, Role.ADMIN, "PUT", "/v1/pools/cpu", json=POOL)
        ask(cluster, ADA, Role.USER, "POST", "/v1/jobs", json=JOB)
        cluster.pass_time(1)
        cluster.pass_time(1)
        before = shown(cluster)
        assert (before["is_former"], len(before["entries"])) == (False, 2)
        cluster.down()
        cluster.paused = True  # the new controller answers, and has had no wake
        cluster.up()
        after = shown(cluster)
        assert after["is_former"]
        for name in ("entries", "pending", "routed", "unmet", "decided_at"):
            assert after[name] == before[name]
    finally:
        cluster.stop()
