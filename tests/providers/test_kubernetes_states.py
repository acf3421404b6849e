"""The provider ``kubernetes``: what it sees of pods."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.providers.kubernetes_cluster import Cluster
from tests.providers.kubernetes_rules import Object
from tests.providers.kubernetes_site import (
    IMAGE,
    KubernetesSite,
    kubernetes_site,
    order,
    running,
    the_machine,
    the_pod,
)

from muster.providers.kubernetes.manifests import GRACE_S
from muster.providers.provider import MachineState


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def site(tmp_path: Path, cluster: Cluster) -> Iterator[KubernetesSite]:
    with kubernetes_site(tmp_path, cluster) as site:
        yield site


def test_running_pod_is_a_running_machine(site: KubernetesSite) -> None:
    site.provider().create(order())
    machine = running(site, site.provider())
    assert (machine.address, machine.detail) == ("10.1.2.3", "on node node-1")


def test_unschedulable_pod_is_coming_in_the_scheduler_s_words(
    site: KubernetesSite, cluster: Cluster
) -> None:
    cluster.starts_after_s = None
    site.provider().create(order())
    words = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    cluster.edit(
        cluster.named("pods")[0],
        lambda pod: pod["status"]["conditions"].append(condition | {"message": words}),
    )

    machine = the_machine(site.provider())
    assert machine.state is MachineState.COMING
    assert machine.detail == f"Unschedulable: {words}"


WAITING = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}}
ENDED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}


@pytest.mark.parametrize(
    ("status", "state", "detail"),
    [
        ({"phase": "Pending", "containerStatuses": [WAITING]}, "coming", "ImagePullBackOff: Back"),
        (
            {"phase": "Running", "containerStatuses": [ENDED]},
            "running",
            "OOMKilled: ended with 137",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "low on x"},
            "stopped",
            "Evicted: low",
        ),
        ({"phase": "Succeeded"}, "stopped", ""),
        ({"phase": "Unknown", "reason": "NodeLost"}, "running", "NodeLost"),
        ({"phase": "Failed", "message": "x" * 1000}, "stopped", "x" * 300),
    ],
)
def test_state_of_a_pod_is_the_machine_s(
    site: KubernetesSite, cluster: Cluster, status: Object, state: str, detail: str
) -> None:
    cluster.starts_after_s = None
    site.provider().create(order())
    containers = [
        {"name": "agent", "image": IMAGE, "imageID": "", "ready": False, "restartCount": 0}
        | {"state": each}
        for each in status.get("containerStatuses", ())
    ]
    cluster.edit(
        cluster.named("pods")[0],
        lambda pod: pod["status"].update(status | {"containerStatuses": containers}),
    )

    machine = the_machine(site.provider())
    assert machine.state == state
    assert machine.detail.startswith(detail)
    assert len(machine.detail) <= 300


def test_pod_of_a_drained_node_leaves(site: KubernetesSite, cluster: Cluster) -> None:
    site.provider().create(order())
    name = running(site, site.provider()).id
    cluster.ends_after_s = 1e9
    cluster.evict(name, "node-1 is drained")

    machine = the_machine(site.provider())
    assert machine.state is MachineState.LEAVING
    assert machine.detail.startswith("EvictionByEvictionAPI: node-1 is drained")
    told = datetime.fromisoformat(the_pod(cluster)["metadata"]["deletionTimestamp"])
    assert machine.leaves_at == told.timestamp()


def test_pod_that_is_to_be_preempted_says_when(site: KubernetesSite, cluster: Cluster) -> None:
    site.provider().create(order())
    name = running(site, site.provider()).id
    at = "2026-11-23T12:00:00Z"
    condition = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": at}
    cluster.edit(name, lambda pod: pod["status"]["conditions"].append(condition))

    machine = the_machine(site.provider())
    assert machine.state is MachineState.RUNNING
    moment = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
    assert machine.leaves_at == moment + GRACE_S
