"""Work takes the caller's PATH and the like along, however it is handed in."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.fake_cluster import FakeCluster, job
from tests.cli.rendered import shown, wide

from muster.cli.described.job import job_parts
from muster.client import Client
from muster.client.calls import body_of
from muster.client.environment import with_environment
from muster.core.specs import DeploymentSpec, JobSpec

CALLER = {"PATH": "/venv/bin:/bin", "VIRTUAL_ENV": "/venv", "SECRET": "s", "HOME": "/home/me"}
TAKEN = {"PATH": "/venv/bin:/bin", "VIRTUAL_ENV": "/venv"}


@pytest.fixture(autouse=True)
def caller(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONDA_PREFIX", "PYTHONPATH", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in CALLER.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("of_file", [{}, {"environment": "caller"}, {"kind": "deployment"}])
def test_process_takes_the_callers_variables_along_unless_it_has_its_own(
    of_file: dict[str, Any],
) -> None:
    found = with_environment({"command": ["x"], "env": {"PATH": "/own", "A": "1"}, **of_file})
    assert found["env"] == {"PATH": "/own", "A": "1", "VIRTUAL_ENV": "/venv"}
    assert found["environment"] == "caller"


@pytest.mark.parametrize(
    "keys",
    [
        {"command": ["x"], "environment": "clean", "env": {"A": "1"}},
        {"command": ["x"], "environment": "mine"},
        {"command": ["x"], "env": ["A=1"]},
        {"kind": "pool", "name": "p", "command": ["make"]},
        {"kind": "quota", "user": "ann"},
    ],
)
def test_clean_and_wrong_keys_and_other_kinds_are_left_as_they_are(keys: dict[str, Any]) -> None:
    assert with_environment(keys) == keys


def test_directories_that_begin_at_the_callers_are_told_from_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    caller = {"PATH": "bin:/usr/bin:", "PYTHONPATH": "src:../lib:~/x", "VIRTUAL_ENV": ".venv"}
    found = with_environment({"command": ["x"], "workdir": "/data"}, caller)
    assert found["env"] == {
        "PATH": f"{tmp_path}/bin:/usr/bin:",
        "PYTHONPATH": f"{tmp_path}/src:{tmp_path.parent}/lib:~/x",
        "VIRTUAL_ENV": f"{tmp_path}/.venv",
    }


def test_what_no_spec_can_hold_is_left_out_and_refuses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    odd = {"PATH": "/usr/bin:/home/\udcff/bin:/bin", "PYTHONPATH": "/\udcff", "LANG": "\udcff"}
    for name, value in odd.items():
        monkeypatch.setenv(name, value)
    assert json.loads(body_of({"command": ["x"]})[1])["env"] == {
        "PATH": "/usr/bin:/bin",
        "VIRTUAL_ENV": "/venv",
    }


def test_each_kernel_of_a_session_takes_them_along() -> None:
    clean = {"command": ["b"], "environment": "clean"}
    found = with_environment({"kind": "session", "kernels": [{"command": ["a"]}, clean, "wrong"]})
    assert found["kernels"] == [
        {"command": ["a"], "environment": "caller", "env": TAKEN},
        clean,
        "wrong",
    ]


def test_keys_and_specs_and_services_are_handed_in_alike(client: Client) -> None:
    keys = {"command": ["true"], "resources": {"cpu": "10m"}}
    for made in (client.submit(keys), client.submit(**keys), client.submit(JobSpec(**keys))):
        assert client.job(made.id).spec["env"] == TAKEN
    service = {"name": "chat", **keys, "replicas": 0}
    assert client.deploy(service).id == client.deploy(DeploymentSpec(**service)).id
    found = client.deployments.show("chat")
    assert (found.spec["env"], found.spec["environment"]) == (TAKEN, "caller")
    assert found.revision == 1
    assert client.deploy({**service, "environment": "clean"}).revision == 2
    client.cancel("chat")


def test_show_says_whose_environment_work_has(client: Client) -> None:
    def told(**fields: Any) -> str:
        made = client.submit(command=["true"], resources={"cpu": "10m"}, **fields)
        return " ".join(" ".join(shown(job_parts(wide(), client.job(made.id), [], 0.0))).split())

    assert "env caller's PATH, VIRTUAL_ENV group" in told()
    assert "env clean group" in told(environment="clean")


def test_command_line_leaves_the_environment_to_the_client() -> None:
    cluster = FakeCluster(jobs_=[job()])
    assert cluster.run("run", "-d", "-e", "SECRET", "python", "train.py").exit_code == 0
    assert cluster.run("run", "-d", "--clean-env", "true").exit_code == 0
    (_, taken), (_, clean) = cluster.asked
    assert (taken["env"], taken.get("environment")) == ({"SECRET": "s"}, None)
    assert (clean.get("env"), clean["environment"]) == (None, "clean")


def test_template_of_a_version_without_the_key_is_the_same_revision() -> None:
    spec = DeploymentSpec(name="chat", command=["serve"])
    assert "environment" not in spec.template()
    clean = DeploymentSpec(name="chat", command=["serve"], environment="clean")
    assert clean.template()["environment"] == "clean"
    assert spec.with_template(clean.template()) == clean
    assert clean.with_template(spec.template()) == spec
