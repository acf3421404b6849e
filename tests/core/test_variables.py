"""Variables that a spec sets in vain."""

from typing import Any

import pytest

from muster.core.specs import DeploymentSpec, JobSpec, SessionSpec
from muster.core.specs.variables import unused

ENV = {"PORT": "1", "RANK": "2", "CUDA_VISIBLE_DEVICES": "3", "CUDA_DEVICE_ORDER": "4", "MINE": "5"}


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        (JobSpec(command=["x"], env=ENV), ["CUDA_VISIBLE_DEVICES"]),
        (JobSpec(command=["x"], env=ENV, coscheduled=True), ["RANK", "CUDA_VISIBLE_DEVICES"]),
        (DeploymentSpec(name="d", command=["x"], env=ENV), ["PORT", "CUDA_VISIBLE_DEVICES"]),
        (DeploymentSpec(name="d", command=["x"], env={"MINE": "5"}), []),
    ],
)
def test_values_of_variables_that_muster_sets_are_known(spec: Any, names: list[str]) -> None:
    assert unused(spec) == names


def test_values_in_vain_of_all_kernels_of_a_session_are_known_once_each() -> None:
    gpu = {"command": "a", "env": ENV, "resources": {"gpu": 1}}
    lone = SessionSpec.model_validate({"type": "inference", "kernels": [{**gpu, "port": 80}]})
    assert unused(lone) == ["PORT", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"]
    gang = SessionSpec.model_validate({"kernels": [gpu, {"command": "b", "env": ENV}]})
    assert unused(gang) == ["RANK", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"]
