"""A disk that is full: new work is refused in so many words, and nothing that was accepted is lost.

Everything of the cluster is on that disk: the controller's database, the agent's journal and logs.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from tests.e2e.cluster import Cluster, agent, started, until

from muster.core.states import JobState

SIZE = "16m"
MOST_BEFORE_REFUSAL = 2000
"""Jobs that fit into what the database has reserved of a full disk; it is some dozens."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    path = tmp_path / "disk"
    path.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", str(path)], check=True)


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
    """What was accepted after all, and the sentence of the refusal.

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
        filler = fill(disk)
        accepted, sentence = submit_until_refused(cluster)
        assert "full" in sentence
        known = {job.id for job in client.jobs("all", limit=1000)}
        assert known == {earlier.id, *accepted}, "it can still be asked, and knows what it took"
        go.touch()
        until(ended.exists)

        filler.unlink()
        assert client.wait(earlier.id, 30.0).state == JobState.FAILED
        assert client.task(earlier.id, 0).attempts[0].exit_code == 5, "ended while it was full"
        for id_ in accepted:
            assert client.wait(id_, 30.0).state == JobState.SUCCEEDED
        later = client.submit(command=["true"])
        assert client.wait(later.id, 30.0).state == JobState.SUCCEEDED
    assert cluster.query("PRAGMA integrity_check") == [("ok",)]
    assert cluster.query("SELECT count(*) FROM allocations") == [(0,)]
