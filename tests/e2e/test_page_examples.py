"""The work of all pages runs as it stands, but for the machines and programs that it names.

Each example is written into a directory of its own, with a stub of its program. Numbers of machines
and GPUs, directories of those machines, channels and start times are what this cluster has.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.core.test_page_examples import documents, examples, is_spec
from tests.e2e import stub_torch
from tests.e2e.cluster import Cluster, agent, started

from muster.core.specs import DeploymentSpec, JobSpec, SessionSpec
from muster.core.specs.amounts import Spec
from muster.core.specs.documents import load_keys
from muster.core.specs.load import spec_of

TIMEOUT_S = 90.0
ATTRIBUTES = {"zone": "a", "rack": "r1", "slot": "1"}
WAITED_FOR = ("prep", "download")
"""Jobs that an example waits for."""


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with torchrun and torch, and with python."""
    folder = tmp_path_factory.mktemp("stubs")
    (folder / "python").symlink_to(sys.executable)
    return stub_torch.install(folder, sys.executable)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    agents = [
        agent(
            f"agent-{number}",
            cpu_milli=64_000,
            memory_bytes=512 * 2**30,
            gpus="8xH100",
            attributes=ATTRIBUTES,
        )
        for number in (1, 2, 3)
    ]
    cluster = Cluster(tmp_path_factory.mktemp("examples") / "home", agents)
    with started(cluster):
        yield cluster


def muster(cluster: Cluster, directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if name[:7] != "MUSTER_"}
    return subprocess.run(
        [str(Path(sys.executable).with_name("muster")), *words],
        cwd=directory,
        env=environment | {"MUSTER_HOME": str(cluster.home.path), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def adapted(text: str, directory: Path) -> str:
    """An example for this cluster."""
    for pattern, here in (
        (r"^tasks: \d+", "tasks: 2"),
        (r"gpu: 8\b", "gpu: 2"),
        (r"workdir: /\S+", f"workdir: {directory}"),
        (r"^not_before: .*", "not_before: 2020-01-31T08:00:00+01:00"),
        (r"https://hooks\.example\.org/\S+", "http://127.0.0.1:9/"),
        (r"slack://\w+/\w+/\w+", "json://127.0.0.1:9"),
        (r"recovery: true", "recovery: {exit_codes: [77]}"),
    ):
        text = re.sub(pattern, here, text, flags=re.MULTILINE)
    return text


def work() -> list[tuple[str, str]]:
    """The examples that are work, with the place of each, but for those of a page that has a test
    of its own (``test_translated_page.py``)."""
    found = []
    for place, text in documents():
        if place.startswith("translated.md:"):
            continue
        keys = load_keys(text)
        if is_spec(keys) and keys.get("kind", "job") in ("job", "session", "deployment"):
            found.append((place, text))
    return found


def script(page: str, name: str) -> str:
    """The program on a page that begins with its name."""
    for place, text in examples("python"):
        if place.startswith(f"{page}:") and text.startswith(f"# {name}\n"):
            return text
    raise AssertionError(f"{page} has no {name}")


@pytest.mark.parametrize(("place", "text"), work())
def test_work_of_a_page_runs(
    cluster: Cluster, stubs: Path, tmp_path: Path, place: str, text: str
) -> None:
    (tmp_path / "train.py").write_text("import os, sys; print(*sys.argv[1:], os.getcwd())\n")
    text = adapted(text, tmp_path)
    keys = load_keys(text)
    spec = spec_of(keys | ({"workdir": str(tmp_path)} if "workdir" in keys else {}))
    (tmp_path / "example.yaml").write_text(text)
    if isinstance(spec, DeploymentSpec):
        assert muster(cluster, tmp_path, "deploy", "example.yaml").returncode == 0
        assert muster(cluster, tmp_path, "cancel", spec.name).returncode == 0
        return
    assert isinstance(spec, JobSpec | SessionSpec)
    for name in WAITED_FOR if spec.after else ():
        ran = muster(cluster, tmp_path, "run", "--name", name, "--scratch", "true")
        assert ran.returncode == 0, ran.stderr
    with_stubs(tmp_path / "example.yaml", spec, stubs)
    done = muster(cluster, tmp_path, "submit", "example.yaml", "--wait")
    is_to_fail = text.partition("\n")[0].endswith(" fails")
    assert done.returncode == is_to_fail, done.stderr


def with_stubs(file: Path, spec: Spec, stubs: Path) -> None:
    """Have the processes of a job find the stubs first."""
    if isinstance(spec, JobSpec):
        env = {"PATH": f"{stubs}:{os.environ['PATH']}", "PYTHONPATH": str(stubs), **spec.env}
        lines = [line for line in file.read_text().splitlines() if not line.startswith("env:")]
        file.write_text("\n".join([*lines, f"env: {json.dumps(env)}", ""]))


def output(cluster: Cluster, directory: Path, ref: str) -> Sequence[str]:
    return muster(cluster, directory, "logs", ref).stdout.splitlines()


def test_training_of_the_page_on_pytorch_is_one_and_goes_on_from_its_checkpoint(
    cluster: Cluster, stubs: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(script("pytorch.md", "train.py"))
    (text,) = (text for place, text in work() if place.startswith("pytorch.md:"))
    text = adapted(text, tmp_path).replace("name: pytorch", "name: torch")
    file = tmp_path / "torch.yaml"
    file.write_text(text)
    with_stubs(file, spec_of(load_keys(text)), stubs)
    (tmp_path / "fail-once").touch()
    done = muster(cluster, tmp_path, "submit", "torch.yaml", "--wait")
    assert done.returncode == 0, done.stderr
    assert output(cluster, tmp_path, "torch/0") == ["4 processes go on from step 200"]
    first = muster(cluster, tmp_path, "logs", "torch/0", "--attempt", "1").stdout
    assert first.splitlines()[0] == "4 processes go on from step 0"
    assert "a step went wrong" in first
    again = muster(cluster, tmp_path, "submit", "torch.yaml", "--wait", "--name", "torch-again")
    assert again.returncode == 0, again.stderr
    assert output(cluster, tmp_path, "torch-again/0") == ["4 processes go on from step 1000"]
