"""Sizes have units wherever a person writes one; programs may send numbers of bytes."""

import json
from pathlib import Path
from typing import Any

import pytest

from muster.agent.config import AgentConfig
from muster.app.account_options import AccountOptions, with_accounts
from muster.app.local_agent_settings import some_amount
from muster.core.errors import InvalidSpec
from muster.core.resources import parse_bytes
from muster.core.specs import DeploymentSpec, JobSpec, PoolSpec, QuotaSpec, load_spec
from muster.core.specs.pool import MachineShape
from muster.core.specs.service import stored_spec

JOB = "command: x\nresources: {{{}}}"
QUOTA = "{{kind: quota, name: d/p/u, {}}}"
POOL = "{{kind: pool, name: p, provider: local, max_slices: 1, machine: {{cpu: 1, {}}}}}"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (JOB.format("memory: 64"), "resources.memory"),
        (JOB.format("disk: 64"), "resources.disk"),
        (JOB.format("disk: '64'"), "resources.disk"),
        (QUOTA.format("limits: {memory: 64}"), "limits.memory"),
        (QUOTA.format("limits: {disk: 64}"), "limits.disk"),
        (QUOTA.format("largest: {memory: 64}"), "largest.memory"),
        (QUOTA.format("open_specs: 64"), "open_specs"),
        (QUOTA.format("ended_specs: 64"), "ended_specs"),
        (POOL.format("memory: 64"), "machine.memory"),
        (POOL.format("memory: 1GiB, disk: 64"), "machine.disk"),
        (
            POOL.format("memory: 1GiB, gpus: 1, gpu_model: T4, gpu_memory: 64"),
            "machine.gpu_memory",
        ),
    ],
)
def test_size_without_unit_is_refused_with_the_one_meant(text: str, field: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        load_spec(text)
    assert f"{field} is " in str(refused.value)
    assert "expected a size with its unit: write 64GiB, or 64B if bytes" in str(refused.value)


@pytest.mark.parametrize(("number", "meant"), [(0.5, "0.5GiB"), (16384, "16384MiB")])
def test_unit_that_was_meant_follows_from_the_number(number: float, meant: str) -> None:
    with pytest.raises(ValueError, match=f"write {meant}, or "):
        parse_bytes(number)


def test_options_have_the_same_rule() -> None:
    with pytest.raises(Exception, match="--memory is '64': expected a size with its unit"):
        some_amount("--memory", "64", parse_bytes)
    with pytest.raises(Exception, match="--scratch-max is '64': expected a size with its unit"):
        with_accounts(AgentConfig(Path(), "", ""), AccountOptions(scratch_max="64"))


def test_specs_read_what_they_write() -> None:
    job = load_spec(JOB.format("memory: 16g, disk: 4kb"))
    assert isinstance(job, JobSpec)
    sent = job.model_dump(mode="json")["resources"]
    assert (sent["memory"], sent["disk"]) == (16 * 10**9, "4000B")
    assert JobSpec.model_validate(job.model_dump()) == job
    assert load_spec(job.model_dump_json(exclude_defaults=True)) == job


@pytest.mark.parametrize(
    ("model", "keys", "size"),
    [
        (JobSpec, {"command": ["x"], "resources": {"disk": 64}}, ("resources", "disk")),
        (QuotaSpec, {"name": "d/p/u", "limits": {"memory": 64}}, ("limits", "memory")),
        (
            PoolSpec,
            {"name": "p", "provider": "x", "max_slices": 1, "machine": {"cpu": 1, "memory": 64}},
            ("machine", "memory"),
        ),
        (MachineShape, {"cpu": 1, "memory": 64}, ("memory",)),
    ],
)
def test_stored_number_of_bytes_is_read_as_it_was(
    model: Any, keys: dict[str, Any], size: tuple[str, ...]
) -> None:
    found = model.stored(json.dumps(keys))
    for key in size:
        found = getattr(found, key)
    assert found == 64


def test_stored_session_and_revision_are_read_as_they_were() -> None:
    kernel = {"command": ["x"], "resources": {"disk": 64}}
    assert stored_spec(json.dumps({"kernels": [kernel]})).kernels[0].resources.disk == 64
    deployment = DeploymentSpec.stored(json.dumps({"name": "d", **kernel}))
    assert deployment.with_replicas(2).resources.disk == 64
    assert deployment.with_template(kernel).resources.disk == 64
