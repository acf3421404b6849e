"""The provider ``kubernetes``: what it makes of a slice, and what it sees of pods."""

import base64
import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from lightkube import Client, KubeConfig
from lightkube.resources.core_v1 import Pod
from tests.providers.conformance import TOKEN, Conformance, gone, ids
from tests.providers.kubernetes_cluster import Cluster
from tests.providers.kubernetes_site import (
    IMAGE,
    SETUP,
    KubernetesSite,
    kubernetes_site,
    order,
    running,
    the_pod,
)

from muster.agent.identity import load_identity, locked
from muster.autoscaling.standing import CreateOutcome
from muster.providers.provider import ProviderError


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def site(tmp_path: Path, cluster: Cluster) -> Iterator[KubernetesSite]:
    with kubernetes_site(tmp_path, cluster) as site:
        yield site


class TestKubernetes(Conformance):
    pass


def secret_data(cluster: Cluster) -> dict[str, str]:
    (name,) = cluster.named("secrets")
    data = cluster.found("secrets", name)["data"]
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


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
        "--boot-id $(MUSTER_POD_UID) --ports 20000-29999 --disk 107374182400B"
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


def test_fragment_of_the_pool_is_part_of_the_pod_beside_what_is_muster_s(
    site: KubernetesSite, cluster: Cluster
) -> None:
    data = {"name": "data", "persistentVolumeClaim": {"claimName": "sets"}}
    mount = {"name": "data", "mountPath": "/data", "readOnly": True}
    spread = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    provider = site.provider(
        pod={
            "volumes": [data],
            "imagePullSecrets": [{"name": "registry"}],
            "topologySpreadConstraints": [spread],
            "container": {
                "volumeMounts": [mount],
                "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
                "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
            },
        }
    )
    provider.check()
    provider.create(order())
    spec = the_pod(cluster)["spec"]
    (container,) = spec["containers"]
    assert [each["name"] for each in spec["volumes"]] == ["given", "room", "shared-memory", "data"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["topologySpreadConstraints"] == [spread]
    assert container["volumeMounts"][-1] == mount
    assert [each["name"] for each in container["env"]][1:] == ["NVIDIA_VISIBLE_DEVICES"]
    assert container["securityContext"] == {"runAsUser": 0, "capabilities": {"add": ["IPC_LOCK"]}}
    assert not {"ports", "hostNetwork"} & {*container, *spec}


def test_fragment_that_the_api_server_refuses_is_told_when_the_pool_is_applied(
    site: KubernetesSite,
) -> None:
    mounts = [{"name": "nowhere", "mountPath": "/data"}]
    provider = site.provider(pod={"container": {"volumeMounts": mounts}})
    with pytest.raises(ProviderError, match=r"bad request: .*volumeMounts: Not found: .nowhere"):
        provider.check()


def test_pods_with_the_network_of_their_node_have_it_for_themselves(
    site: KubernetesSite, cluster: Cluster
) -> None:
    site.provider(host_network=True, ports="21000-21099").create(order())
    (container,) = the_pod(cluster)["spec"]["containers"]
    assert container["ports"] == [{"name": "kernels", "containerPort": 21000}]
    assert container["args"][-4:-2] == ["--ports", "21000-21099"]


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
