"""Notices of a real cluster, to a real webhook."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.control.notice.receiver import Receiver, receiving
from tests.e2e.cluster import Cluster, agent, started
from tests.living_files import files_below
from tests.patience import until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(Cluster(tmp_path_factory.mktemp("home"), [agent("one")])) as cluster:
        yield cluster


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


def muster(cluster: Cluster, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("muster"), *arguments],
        env=cluster.environment,
        input=given,
        text=True,
        capture_output=True,
        timeout=100,
        check=False,
    )


def test_job_that_fails_tells_a_webhook_and_history_tells_that_it_did(
    cluster: Cluster, receiver: Receiver
) -> None:
    url = f"http://{receiver.host}/hooks/t0p-s3cr3t"
    with cluster.client() as client:
        job = client.submit(
            command=["sh", "-c", "exit 3"],
            name="train",
            notify=[{"url": url, "on": "failure"}, {"url": url + "-not", "on": "success"}],
        )
        client.wait(job.id)
        until(lambda: receiver.got, 60.0)
        ((path, notice),) = receiver.got
        assert path == "/hooks/t0p-s3cr3t"
        assert (notice["title"], notice["type"]) == ("job train: FAILED", "failure")
        assert "reason: exited with code 3" in notice["message"]
        assert f"more: muster show {job.id}" in notice["message"]

        def told() -> list[str]:
            entries = client.history(job.id).items
            return [each.to_status for each in entries if "/ntc-" in each.entity]

        until(lambda: told() == ["SENDING", "SENT"])
    shown = muster(cluster, "history", "train").stdout + muster(cluster, "show", "train").stdout
    assert "notice" in shown
    assert "was sent" in shown
    everything = b"".join(each.read_bytes() for each in logs_of(cluster)) + shown.encode()
    assert b"t0p-s3cr3t" not in everything


def logs_of(cluster: Cluster) -> list[Path]:
    return [*files_below(cluster.home.path, "*.log*")]


def test_trial_tells_plainly_how_it_went(cluster: Cluster, receiver: Receiver) -> None:
    taken = muster(cluster, "notify", "test", f"http://{receiver.host}/t0p-s3cr3t")
    assert (taken.returncode, taken.stdout) == (0, "sent to http://127.0.0.1…\n")
    refused = muster(
        cluster, "notify", "test", "-", given=f"json://{receiver.host}/missing?t0p-s3cr3t=1\n"
    )
    assert refused.returncode != 0
    assert "the channel did not take the notice, it answered 404" in refused.stderr
    assert "t0p-s3cr3t" not in taken.stdout + taken.stderr + refused.stdout + refused.stderr


def test_notice_under_way_when_the_controller_is_killed_is_sent_again(
    cluster: Cluster, receiver: Receiver
) -> None:
    with cluster.client() as client:
        job = client.submit(command=["true"], notify=[f"http://{receiver.host}/drip?rto=600"])
        client.wait(job.id)
    until(lambda: receiver.got, 60.0)
    cluster.kill_controller()
    cluster.start_controller()
    cluster.running()
    until(lambda: len(receiver.got) > 1, 60.0)
    assert {path.partition("?")[0] for path, _ in receiver.got} == {"/drip"}
    ((count,),) = cluster.query("SELECT count(*) FROM notices WHERE subject = ?", job.id)
    assert count == 1
