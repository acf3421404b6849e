"""The settings of a pool of pods: what is wrong with them is told without asking anybody."""

from typing import Any

import pytest
from tests.providers.kubernetes_site import pool_spec

from muster.providers.found import problems_of


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
