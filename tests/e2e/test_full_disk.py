"""A disk that is full: new work is refused in so many words, and nothing that was accepted is lost.

Everything of the cluster is on that disk: the controller's database, the agent's journal and logs.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from tests.e2e.cluster import Cluster, agent, started
from tests.patience import until

from muster.core.states import JobState

SIZE = "16m"
LEASE_S = 2.0
MOST_BEFORE_REFUSAL = 2000
"""Jobs that fit into what the database has reserved of a full disk; it is some dozens."""


@contextmanager
def small_disk(path: Path) -> Iterator[Path]:
    """A small disk of its own, mounted there."""
    path.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "none", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as path:
        yield path


@pytest.fixture
def cluster(disk: Path) -> Iterator[Cluster]:
    with started(Cluster(disk / "home", [agent("one", cpu_milli=4000)])) as cluster:
        yield cluster


def fill(disk: Path) -> Path:
    """A file that takes all the room there is."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    return path


def submit_until_refused(cluster: Cluster) -> tuple[list[str], str]:
    """The jobs that were accepted, and the sentence of the first refusal.

    Without the client, which would be patient.
    """
    accepted: list[str] = []
    headers = {"Authorization": f"Bearer {cluster.home.client()['token']}"}
    url = f"http://127.0.0.1:{cluster.port}/v1/jobs"
    for _ in range(MOST_BEFORE_REFUSAL):
        answer = httpx.post(url, headers=headers, json={"command": ["true"]})
        if answer.status_code == 503:
            return accepted, str(answer.json()["error"])
        accepted.append(answer.raise_for_status().json()["id"])
    raise AssertionError("nothing was refused")


def test_full_disk_refuses_new_work_loses_nothing_and_is_recovered_from(
    cluster: Cluster, disk: Path, tmp_path: Path
) -> None:
    go, ended = tmp_path / "go", tmp_path / "ended"
    with cluster.client() as client:
        earlier = client.submit(
            command=f"until [ -e {go} ]; do sleep 0.05; done; touch {ended}; exit 5"
        )
        until(lambda: client.task(earlier.id, 0).started_at)
        client.put_group({"name": "default", "agent_silence": 1.0, "kernel_lease": LEASE_S})
        until(lambda: cluster.query("SELECT lease_s FROM agents") == [(LEASE_S,)])
        filler = fill(disk)
        accepted, sentence = submit_until_refused(cluster)
        assert "full" in sentence
        assert client.health().status == "degraded"
        assert "full" in (client.cluster().trouble or "")
        time.sleep(2 * LEASE_S)  # which is renewed all the same
        assert client.task(earlier.id, 0).attempts[0].ended_at is None
        assert len(cluster.kernels()) > 0
        known = {job.id for job in client.jobs("all", limit=1000)}
        assert known == {earlier.id, *accepted}, "it can still be asked, and knows what it took"
        go.touch()
        until(ended.exists)

        filler.unlink()
        until(lambda: client.health().status == "ok")
        assert client.wait(earlier.id, 30.0).state == JobState.FAILED
        assert client.task(earlier.id, 0).attempts[0].exit_code == 5, "ended while it was full"
        for id_ in accepted:
            assert client.wait(id_, 30.0).state == JobState.SUCCEEDED
        later = client.submit(command=["true"])
        assert client.wait(later.id, 30.0).state == JobState.SUCCEEDED
    assert cluster.query("PRAGMA integrity_check") == [("ok",)]
    until(lambda: cluster.query("SELECT count(*) FROM allocations") == [(0,)])


def test_agent_whose_disk_is_full_tells_what_ended_and_takes_nothing_new(
    tmp_path: Path,
) -> None:
    """Only the agent's directory is on that disk: a task that succeeds there does not run again."""
    go, ran = tmp_path / "go", tmp_path / "ran"
    cluster = Cluster(tmp_path / "home", [agent("one", cpu_milli=4000)])
    with (
        small_disk(cluster.home.agent_directory("one")) as disk,
        started(cluster),
        cluster.client() as client,
    ):
        job = client.submit(
            command=f"echo x >> {ran}; until [ -e {go} ]; do sleep 0.05; done",
        )
        until(ran.exists)
        filler = fill(disk)
        go.touch()
        assert client.wait(job.id, 30.0).state == JobState.SUCCEEDED, "while it is full"
        assert ran.read_text() == "x\n"
        until(lambda: client.agents()[0].disk_full)
        assert (reason := client.agents()[0].reason) is not None
        assert reason.code == "DISK_FULL"
        waiting = client.submit(command=["true"])
        until(lambda: "DISK_FULL" in repr(client.why(waiting.id)))
        filler.unlink()
        assert client.wait(waiting.id, 60.0).state == JobState.SUCCEEDED
