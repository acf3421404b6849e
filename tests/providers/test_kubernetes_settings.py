"""The settings of a pool of pods: what is wrong with them is told without asking anybody."""

from typing import Any

import pytest
from tests.providers.kubernetes_site import pool_spec

from muster.providers.found import problems_of


def mounted(volume: str, path: str) -> dict[str, Any]:
    mounts = [{"name": volume, "mountPath": path}]
    return {"pod": {"container": {"volumeMounts": mounts}}}


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
        ({"ports": "80-90"}, "settings.ports", "expected FIRST-LAST from 1024 on"),
        ({"ports": "30000"}, "settings.ports", "expected FIRST-LAST from 1024 on"),
        ({"pod": []}, "settings.pod", "expected"),
        ({"pod": {"containers": []}}, "settings.pod.containers", "is Muster's own"),
        ({"pod": {"restartPolicy": "Never"}}, "settings.pod.restartPolicy", "is Muster's own"),
        ({"pod": {"nodeSelector": {}}}, "settings.pod.nodeSelector", "is said by node_selector"),
        ({"pod": {"volumes": {}}}, "settings.pod.volumes", "expected a list"),
        ({"pod": {"volumes": ["x"]}}, "settings.pod.volumes", "expected a list of objects"),
        ({"pod": {"volumes": [{}] * 65}}, "settings.pod.volumes", "expected at most 64 entries"),
        (
            {"pod": {"volumes": [{"name": "data", "persistantVolumeClaim": {"claimName": "x"}}]}},
            "settings.pod.volumes.0.persistantVolumeClaim",
            "no field of Kubernetes'",
        ),
        ({"pod": {"volumes": [{"name": 5}]}}, "settings.pod", "Expected `str`, got `int`"),
        ({"pod": {"affinity": {"x": "y" * 40_000}}}, "settings.pod", "expected at most 32,768"),
        (
            {"pod": {"volumes": [{"name": "room"}]}},
            "settings.pod.volumes.0.name",
            "this one is Muster's own",
        ),
        (
            {"pod": {"securityContext": {"runAsUser": 1000}}},
            "settings.pod.securityContext.runAsUser",
            "the agent is root",
        ),
        ({"pod": {"container": {"image": "x"}}}, "settings.pod.container.image", "is said by"),
        (
            {"pod": {"container": {"env": [{"name": "MUSTER_POD_UID", "value": "x"}]}}},
            "settings.pod.container.env.0.name",
            "does not begin with MUSTER_",
        ),
        (mounted("given", "/data"), "settings.pod.container.volumeMounts.0.name", "is Muster's"),
        (mounted("data", "data"), "settings.pod.container.volumeMounts.0.mountPath", "absolute"),
        *(
            (mounted("data", path), "settings.pod.container.volumeMounts.0.mountPath", "apart from")
            for path in ("/", "/etc//muster/", "/var/lib", "/var/lib/muster/agent", "/dev/./shm")
        ),
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
    assert problems_of(pool_spec(namespace="work", context="here", ports="21000-21099")) == []
    data = {"name": "data", "persistentVolumeClaim": {"claimName": "sets"}}
    mount = {"name": "data", "mountPath": "/data", "readOnly": True}
    fragment = {"volumes": [data], "container": {"volumeMounts": [mount]}}
    assert problems_of(pool_spec(pod=fragment)) == []
