"""Specs that were stored before today's rules for handing in."""

from typing import Any

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import Cluster

from muster.control.deployment.entity import Deployment
from muster.core.errors import InvalidSpec
from muster.core.specs import JobSpec, SessionSpec, parse_spec
from muster.core.specs.deployment import DeploymentSpec

REFUSED_PROCESSES: list[dict[str, Any]] = [
    {"files": {"./train.py": ""}},
    {"files": {"a//b": "", "c/": ""}},
    {"files": {"é" * 200: ""}},
    {"files": {"a": "", "a/b": ""}},
    {"env": {"MUSTER_TASK": "7"}},
]
"""Keys of a process that a version before this one took, and this one refuses at hand-in."""
REFUSED_JOBS = [
    *REFUSED_PROCESSES,
    {"coscheduled": True, "tasks": 2, "recovery": {"scope": "task"}},
]


@pytest.mark.parametrize("keys", REFUSED_JOBS)
def test_controller_starts_with_a_job_that_it_would_refuse(
    group_world: MakeWorld, keys: dict[str, Any]
) -> None:
    written = {"command": ["x"], **keys}
    with pytest.raises(InvalidSpec):
        parse_spec(JobSpec, written)
    world = group_world({"a": 2}, lambda start: Run(1e6))
    job = world.submit(JobSpec.model_validate(written))
    world.run(2)
    world.restart_controller()
    assert world.plane.live.jobs[job.id].spec == job.spec


@pytest.mark.parametrize("keys", REFUSED_PROCESSES)
def test_controller_starts_with_a_session_that_it_would_refuse(
    group_world: MakeWorld, keys: dict[str, Any]
) -> None:
    written = {"kernels": [{"command": ["x"], **keys}]}
    with pytest.raises(InvalidSpec):
        parse_spec(SessionSpec, written)
    world = group_world({"a": 2}, lambda start: Run(1e6))
    session = world.submit_session(SessionSpec.model_validate(written))
    world.run(2)
    world.restart_controller()
    assert session.id in world.plane.live.sessions


@pytest.mark.parametrize("keys", REFUSED_PROCESSES)
def test_controller_starts_with_a_deployment_that_it_would_refuse(
    worlds: MakeWorld, keys: dict[str, Any]
) -> None:
    with pytest.raises(InvalidSpec):
        parse_spec(DeploymentSpec, {"name": "web", "command": ["x"], **keys})
    cluster = Cluster(worlds)
    deployment = cluster.deploy(**keys)
    cluster.run(2)
    cluster.world.restart_controller()
    loaded = cluster.world.plane.live.of(Deployment)[deployment.id]
    assert loaded.spec == deployment.spec
