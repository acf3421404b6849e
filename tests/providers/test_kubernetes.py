"""The provider ``kubernetes``: what it makes of a slice, and what it sees of pods."""

import base64
import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from lightkube import Client, KubeConfig
from lightkube.resources.core_v1 import Pod
from tests.providers.conformance import TOKEN, Conformance, gone, ids
from tests.providers.kubernetes_cluster import Cluster
from tests.providers.kubernetes_rules import Object
from tests.providers.kubernetes_site import IMAGE, KubernetesSite, kubernetes_site, pool_spec

from muster.agent.identity import load_identity, locked
from muster.autoscaling.standing import CreateOutcome
from muster.core.specs.pool import MachineShape
from muster.providers.found import problems_of
from muster.providers.kubernetes.manifests import GRACE_S
from muster.providers.kubernetes.pods import KubernetesPods
from muster.providers.provider import AgentSetup, Machine, MachineState, ProviderError, SliceOrder

GPUS = MachineShape.model_validate(
    {
        "cpu": "7500m",
        "memory": "64GiB",
        "disk": "100GiB",
        "gpus": 4,
        "gpu_model": "NVIDIA H100 80GB HBM3",
        "extra": {"licence": 2},
    }
)
SETUP = AgentSetup("10.0.0.5:7601", "training", TOKEN, authority="-----BEGIN CERTIFICATE-----")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def site(tmp_path: Path, cluster: Cluster) -> Iterator[KubernetesSite]:
    with kubernetes_site(tmp_path, cluster) as site:
        yield site


class TestKubernetes(Conformance):
    pass


def order(slice_: str = "sl-1", machines: int = 1, setup: AgentSetup = SETUP) -> SliceOrder:
    names = tuple(f"{slice_}-{number}" for number in range(machines))
    return SliceOrder(slice_, names, GPUS, False, {"zone": "a"}, setup)


def the_pod(cluster: Cluster) -> Object:
    (name,) = cluster.named("pods")
    return cluster.found("pods", name)


def secret_data(cluster: Cluster) -> dict[str, str]:
    (name,) = cluster.named("secrets")
    data = cluster.found("secrets", name)["data"]
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def the_machine(provider: KubernetesPods) -> Machine:
    (machine,) = provider.list().machines
    return machine


def running(site: KubernetesSite, provider: KubernetesPods) -> Machine:
    """The only machine, once it runs."""
    site.until(lambda: the_machine(provider).state is MachineState.RUNNING)
    return the_machine(provider)


# What is made


def test_pod_is_granted_all_of_its_machine_and_no_more(
    site: KubernetesSite, cluster: Cluster
) -> None:
    site.provider().create(order())
    (container,) = the_pod(cluster)["spec"]["containers"]

    amounts = {
        "cpu": "7500m",
        "memory": str(64 * 2**30),
        "ephemeral-storage": str(100 * 2**30),
        "nvidia.com/gpu": "4",
    }
    assert container["resources"] == {"requests": amounts, "limits": amounts}


def test_pod_runs_the_agent_of_its_machine(site: KubernetesSite, cluster: Cluster) -> None:
    site.provider().create(order())
    (container,) = the_pod(cluster)["spec"]["containers"]

    assert container["image"] == IMAGE
    assert " ".join(container["args"]) == (
        "muster agent --controller 10.0.0.5:7601 --name sl-1-0 --group training "
        "--dir /var/lib/muster/agent --token-file /var/lib/muster/agent/join-token "
        "--ca /var/lib/muster/agent/authority.pem --resource licence=2000m "
        "--boot-id $(MUSTER_POD_UID) --disk 107374182400"
    )
    source = {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert container["env"] == [{"name": "MUSTER_POD_UID", "valueFrom": source}]


def test_secrets_are_in_the_secret_alone(site: KubernetesSite, cluster: Cluster) -> None:
    site.provider().create(order(machines=2))

    data = secret_data(cluster)
    assert data["join-token"] == TOKEN
    assert data["authority.pem"] == SETUP.authority
    credentials = [json.loads(data[f"credential-{index}"]) for index in (0, 1)]
    assert [each["agent"] for each in credentials] == ["", ""]
    assert len({each["credential"] for each in credentials}) == 2
    for secret in (TOKEN, *(each["credential"] for each in credentials)):
        assert secret not in data["plan"]
        for name in cluster.named("pods"):
            assert secret not in json.dumps(cluster.found("pods", name))
        assert not any(secret in request for request in cluster.requests)


def test_pod_is_given_its_own_credential_and_no_way_to_the_api_server(
    site: KubernetesSite, cluster: Cluster
) -> None:
    site.provider().create(order(machines=2))
    for index, name in enumerate(cluster.named("pods")):
        spec = cluster.found("pods", name)["spec"]
        (given,) = (each["secret"] for each in spec["volumes"] if "secret" in each)
        keys = {each["key"] for each in given["items"]}
        assert keys == {"join-token", "authority.pem", f"credential-{index}"}
        assert given["secretName"] == cluster.named("secrets")[0]
        assert spec["automountServiceAccountToken"] is False


def test_pod_makes_a_directory_that_its_agent_accepts(
    site: KubernetesSite, cluster: Cluster, tmp_path: Path
) -> None:
    """Kubernetes' own directory is everybody's to write; no agent keeps anything in such a one."""
    site.provider().create(order())
    room, given = tmp_path / "room", tmp_path / "given"
    room.mkdir()
    room.chmod(0o777)
    given.mkdir()
    (container,) = the_pod(cluster)["spec"]["containers"]
    (volume,) = (each["secret"] for each in the_pod(cluster)["spec"]["volumes"] if "secret" in each)
    data = secret_data(cluster)
    for item in volume["items"]:
        (given / item["path"]).write_text(data[item["key"]])
        (given / item["path"]).chmod(volume["defaultMode"])
    command = [
        word.replace("/var/lib/muster", str(room)).replace("/etc/muster", str(given))
        for word in (*container["command"], "echo", "an $agent")
    ]

    for _ in range(2):  # as after a restart of the container
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        assert done.stdout == "an $agent\n", "what follows the script is run as it is"
    with locked(room / "agent"):
        identity = load_identity(room / "agent")
    assert identity is not None
    assert identity.credential == json.loads(data["credential-0"])["credential"]
    assert (room / "agent" / "join-token").read_text() == TOKEN
    assert (room / "agent").stat().st_mode & 0o777 == 0o700


def test_settings_reach_the_pod(site: KubernetesSite, cluster: Cluster) -> None:
    toleration = {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "seconds": 60}
    provider = site.provider(
        namespace="default",
        image_pull_policy="Always",
        service_account="agents",
        node_selector={"cloud.example/gpu": "h100"},
        tolerations=[toleration],
        gpu_resource="amd.com/gpu",
        runtime_class="nvidia",
        priority_class="training",
        annotations={"team": "vision"},
        host_network=True,
    )
    provider.create(order())

    (name,) = cluster.named("pods", "default")
    pod = cluster.found("pods", name, "default")
    spec = pod["spec"]
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert spec["containers"][0]["resources"]["limits"]["amd.com/gpu"] == "4"
    assert spec["serviceAccountName"] == "agents"
    assert spec["nodeSelector"] == {"cloud.example/gpu": "h100"}
    kept = {name: value for name, value in toleration.items() if name != "seconds"}
    assert spec["tolerations"] == [kept | {"tolerationSeconds": 60}]
    assert (spec["runtimeClassName"], spec["priorityClassName"]) == ("nvidia", "training")
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert pod["metadata"]["annotations"] == {
        "team": "vision",
        "muster/cluster": "c-1",
        "muster/pool": "one",
        "muster/slice": "sl-1",
        "muster/machine": "sl-1-0",
    }


def test_repeated_order_renews_the_token_and_keeps_credentials(
    site: KubernetesSite, cluster: Cluster
) -> None:
    provider = site.provider()
    provider.create(order())
    before = secret_data(cluster)
    provider.create(order(setup=replace(SETUP, token="another")))

    assert secret_data(cluster) == before | {"join-token": "another"}


def test_watcher_sees_the_secret_come_first_and_go_first(
    site: KubernetesSite, cluster: Cluster
) -> None:
    cluster.starts_after_s = None
    provider = site.provider()
    version = str(cluster.version)
    provider.create(order(machines=2))
    assert provider.delete("sl-1")

    changes = [(kind, change) for _, kind, change, _ in cluster.events]
    pods, secret = [("pods", "ADDED")] * 2, ("secrets", "ADDED")
    assert changes == [secret, *pods, ("secrets", "DELETED"), *[("pods", "DELETED")] * 2]
    with Client(KubeConfig.from_file(site.kubeconfig)) as client:
        watched = client.watch(
            Pod, resource_version=version, labels={"muster/pool": "one"}, server_timeout=5
        )
        seen = [next(watched)[0] for _ in range(4)]
    assert seen == ["ADDED", "ADDED", "DELETED", "DELETED"]


# Reboots


def test_rebooted_pod_is_another_with_the_same_spec_and_credential(
    site: KubernetesSite, cluster: Cluster
) -> None:
    site.provider().create(order())
    machine = running(site, site.provider())
    before, data = the_pod(cluster), secret_data(cluster)

    site.provider(image="registry.example/muster:2").reboot(machine)

    after = the_pod(cluster)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["metadata"]["ownerReferences"] == before["metadata"]["ownerReferences"]
    before["spec"].pop("nodeName")
    after["spec"].pop("nodeName", None)
    assert after["spec"] == before["spec"], "the pool's settings of today are for new slices"
    assert secret_data(cluster) == data


@pytest.mark.parametrize("hard", [False, True])
def test_reboot_waits_until_the_node_says_that_the_pod_has_ended(
    site: KubernetesSite, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, hard: bool
) -> None:
    """Else the work of both pods could run at once."""
    provider = site.provider()
    provider.create(order())
    machine = running(site, provider)
    uid = the_pod(cluster)["metadata"]["uid"]
    cluster.ends_after_s = 1e9
    if hard:
        cluster.lost_nodes.add("node-1")
    monkeypatch.setattr("muster.providers.kubernetes.pods.LIMIT_S", 1.5)

    with pytest.raises(ProviderError, match="has not ended yet") as raised:
        provider.reboot(machine, hard=hard)
    assert raised.value.outcome is CreateOutcome.UNKNOWN
    assert the_pod(cluster)["metadata"]["uid"] == uid

    cluster.end(machine.id)
    assert cluster.named("pods") == []
    provider.reboot(machine, hard=hard)
    assert the_pod(cluster)["metadata"]["uid"] != uid


# What is seen


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


# What is somebody else's


def test_slices_of_one_name_in_pools_and_clusters_of_one_namespace_are_apart(
    site: KubernetesSite, cluster: Cluster
) -> None:
    providers = [site.provider("one", "a"), site.provider("two", "a"), site.provider("one", "b")]
    made = [ids(provider.create(order(machines=2))) for provider in providers]

    assert len(cluster.named("pods")) == 6
    assert [ids(provider.list().machines) for provider in providers] == made
    gone(site, providers[0], "sl-1")
    assert [ids(provider.list().machines) for provider in providers] == [{}, *made[1:]]
    assert len(cluster.named("secrets")) == 2


@pytest.mark.parametrize("kind", ["pods", "secrets"])
def test_object_of_somebody_else_is_left_alone(
    site: KubernetesSite, cluster: Cluster, kind: str
) -> None:
    """It has the name of the slice's, and even its labels, but not its annotations."""
    provider = site.provider()
    provider.create(order(machines=2))
    name = cluster.named(kind)[-1]
    found = cluster.found(kind, name)
    gone(site, provider, "sl-1")
    metadata = {"name": name, "labels": found["metadata"]["labels"]}
    foreign = {
        "metadata": metadata,
        **{key: found[key] for key in found if key in ("spec", "data")},
    }
    cluster.put(kind, foreign)
    left = cluster.found(kind, name)["metadata"]["uid"]

    with pytest.raises(ProviderError, match="belongs to somebody else") as raised:
        provider.create(order(machines=2))
    assert raised.value.outcome is CreateOutcome.BAD_REQUEST
    assert provider.list().machines == ()
    assert provider.delete("sl-1")
    assert (cluster.named("pods") + cluster.named("secrets")) == [name]
    assert cluster.found(kind, name)["metadata"]["uid"] == left


def test_pod_of_a_request_that_arrives_after_the_deletion_goes(
    site: KubernetesSite, cluster: Cluster
) -> None:
    provider = site.provider()
    provider.create(order())
    late = the_pod(cluster)
    gone(site, provider, "sl-1")

    cluster.put("pods", {"metadata": late["metadata"], "spec": late["spec"]})
    site.until(lambda: cluster.named("pods") == [])


# Settings


@pytest.mark.parametrize(
    ("settings", "field", "expected"),
    [
        ({"imagee": "x"}, "settings.imagee", "unknown key; did you mean image?"),
        ({"image": None}, "settings.image", "expected text"),
        ({"image": "has space"}, "settings.image", "expected an image such as"),
        ({"namespace": "Work"}, "settings.namespace", "expected lower-case letters"),
        ({"image_pull_policy": "Sometimes"}, "settings.image_pull_policy", "expected 'Always'"),
        ({"node_selector": {"gpu": "a b"}}, "settings.node_selector.gpu", "expected letters"),
        ({"tolerations": [{"key": "gpu", "seconds": 5}]}, "settings.tolerations.0.seconds", "only"),
        ({"tolerations": [{}]}, "settings.tolerations.0.key", "expected the key of a taint"),
        (
            {"tolerations": [{"operator": "Exists", "value": "x"}]},
            "settings.tolerations.0.value",
            "expected none",
        ),
        ({"annotations": {"muster/pool": "x"}}, "settings.annotations.muster/pool", "own"),
        ({"host_network": "yes"}, "settings.host_network", "true or false"),
        ({"gpu_resource": "nvidia.com/"}, "settings.gpu_resource", "expected letters"),
    ],
)
def test_wrong_setting_is_told(settings: dict[str, Any], field: str, expected: str) -> None:
    (problem,) = problems_of(pool_spec(**settings))
    assert problem.field == field
    assert expected in problem.expected


def test_pool_without_an_image_is_told() -> None:
    spec = pool_spec().model_copy(update={"settings": {}})
    assert [problem.field for problem in problems_of(spec)] == ["settings.image"]


def test_good_settings_have_no_problems() -> None:
    assert problems_of(pool_spec(namespace="work", context="here")) == []
