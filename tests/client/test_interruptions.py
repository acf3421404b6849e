"""Connections break and controllers restart: a caller notices nothing but the time it takes."""

import select
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from proving.hollow.supervisor import Run
from tests.api.served import LARGE, LIMIT_S, ServedCluster
from tests.control.driven_agent import attempt

from muster.client import Client, Unreachable
from muster.core.states import JobState

SMALL: dict[str, Any] = {"command": ["true"], "resources": {"cpu": "10m"}}


class Proxy:
    """Stands before the server and cuts the connection at the first ``cuts`` answers, or after so
    many bytes of each."""

    def __init__(self, server: str, cuts: int, after_bytes: int = 0) -> None:
        self._server = server.removeprefix("http://").split(":")
        self._cuts, self._after_bytes = cuts, after_bytes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests = 0
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(LIMIT_S)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._carry, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _carry(self, client: socket.socket) -> None:
        host, port = self._server
        with client, socket.create_connection((host, int(port))) as server:
            answered = 0
            while True:
                ready, _, _ = select.select([client, server], [], [], LIMIT_S)
                for source in ready:
                    data = source.recv(65536)
                    if not data:
                        return
                    if source is client:
                        self.requests += 1
                        server.sendall(data)
                        continue
                    answered += len(data)
                    if self._cuts and answered > self._after_bytes:
                        self._cuts -= 1
                        return
                    client.sendall(data)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedCluster]:
    cluster = ServedCluster(tmp_path, {"a1": LARGE})
    cluster.start()
    yield cluster
    cluster.stop()


def test_submission_whose_answer_was_lost_is_not_accepted_twice(cluster: ServedCluster) -> None:
    with cluster.client() as direct:
        direct.jobs()
        proxy = Proxy(cluster.url, cuts=3)
        try:
            with Client(proxy.url, cluster.token()) as client:
                job = client.submit(**SMALL)
        finally:
            proxy.close()
        assert proxy.requests >= 4
        assert [found.id for found in direct.jobs("all")] == [job.id]


def test_output_cut_off_again_and_again_comes_whole(cluster: ServedCluster) -> None:
    data = b"".join(b"%07d\n" % number for number in range(60_000))
    with cluster.client() as direct:
        job = direct.submit(**SMALL)
        kernel = direct.task(job.id, 0).kernel_id
    assert kernel is not None
    cluster.write(kernel, data, ended=True)
    with cluster.client() as direct:
        direct.cancel(job.id)
    for follow in (False, True):
        proxy = Proxy(cluster.url, cuts=5, after_bytes=100_000)
        try:
            with Client(proxy.url, cluster.token()) as client:
                assert b"".join(client.logs(job.id, follow=follow)) == data
        finally:
            proxy.close()
        assert proxy.requests > 4


def test_wait_and_followed_output_survive_a_restart_of_the_controller(
    cluster: ServedCluster,
) -> None:
    with cluster.client() as first, cluster.client() as second, cluster.client() as third:
        job = first.submit(**SMALL)
        kernel = first.task(job.id, 0).kernel_id
        assert kernel is not None
        cluster.write(kernel, b"before ")
        output: list[bytes] = []
        begun, states = threading.Event(), list[JobState]()

        def follow() -> None:
            for piece in second.logs(job.id, follow=True):
                output.append(piece)
                begun.set()

        def wait() -> None:
            states.append(third.wait(job.id, LIMIT_S).state)

        threads = [
            threading.Thread(target=follow, daemon=True),
            threading.Thread(target=wait, daemon=True),
        ]
        for thread in threads:
            thread.start()
        assert begun.wait(LIMIT_S)
        cluster.down()
        cluster.up()
        cluster.write(kernel, b"after", ended=True)
        first.cancel(job.id)
        for thread in threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive()
        assert b"".join(output) == b"before after"
        assert states == [JobState.KILLED]


def test_any_read_survives_a_restart_of_the_controller(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        job = client.submit(**SMALL)
        cluster.down()
        later = threading.Timer(0.3, cluster.up)
        later.start()
        assert client.job(job.id).id == job.id
        later.join(LIMIT_S)


def test_patience_has_an_end(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        client.jobs()
        cluster.down()
        try:
            with pytest.raises(Unreachable, match="no controller answers"):
                client._perform(client._send("GET", "/v1/jobs", patience_s=0.3))
        finally:
            cluster.up()


def test_following_goes_through_the_retries_of_a_task(tmp_path: Path) -> None:
    cluster = ServedCluster(
        tmp_path,
        {"a1": LARGE},
        behaviour=lambda start: Run(seconds=1, exit_code=0 if attempt(start) == 3 else 1),
    )
    cluster.start()
    try:
        with cluster.client() as client:
            job = client.submit(**SMALL, max_retries_failure=5, retry_backoff=0)
            pieces = client.logs(job.id, follow=True)
            for number in (1, 2, 3):
                cluster.until(lambda number=number: _kernel(cluster, number) is not None)  # type: ignore[misc]
                kernel = _kernel(cluster, number)
                cluster.write(kernel, b"attempt %d" % number, ended=True)
                assert next(pieces) == b"attempt %d" % number
                cluster.pass_time(5)
            assert next(pieces, None) is None
            assert client.wait(job.id, LIMIT_S).state is JobState.SUCCEEDED
            assert b"".join(client.logs(job.id, attempt=2, follow=True)) == b"attempt 2"
            assert b"".join(client.logs(job.id, tail_bytes=1)) == b"3"
    finally:
        cluster.stop()


def _waits(cluster: ServedCluster, requests: int) -> bool:
    """Whether so many requests are under way and stay: the first ones are answered at once."""
    for _ in range(10):
        if cluster.requests_under_way() != requests:
            return False
        time.sleep(0.03)
    return True


@pytest.mark.parametrize("spec", [SMALL, {**SMALL, "tasks": 3, "coscheduled": True}])
def test_following_misses_no_attempt_of_those_that_fail_at_once(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    """The caller that follows looks only when all attempts have come and gone."""
    cluster = ServedCluster(tmp_path, {}, behaviour=lambda start: Run(seconds=0, exit_code=1))
    cluster.start()
    tasks = spec.get("tasks", 1)
    try:
        with cluster.client() as client, ThreadPoolExecutor() as pool:
            job = client.submit(**spec, max_retries_failure=2, retry_backoff=0)
            idle = cluster.call(cluster.requests_under_way)

            def all_of(task: int) -> bytes:
                pieces = client.logs(job.id, task=task, attempt=1, follow=True, retries=True)
                return b"".join(pieces)

            def latest_and_on(task: int) -> bytes:  # of what has none yet
                return b"".join(client.logs(job.id, task=task, follow=True))

            early = [pool.submit(latest_and_on, task) for task in range(tasks)]
            cluster.until(lambda: cluster.requests_under_way() == idle + tasks)
            cluster.run(cluster._add_agent("a1", LARGE))
            cluster.pass_time(60)
            assert client.wait(job.id, LIMIT_S).ended
            for task in range(tasks):
                for kernel in client.task(job.id, task).attempts:
                    cluster.write(kernel.id, b"%d/%d " % (task, kernel.attempt), ended=True)
            for task in range(tasks):
                attempts = client.task(job.id, task).attempts
                assert len(attempts) >= 3
                written = b"".join(b"%d/%d " % (task, each.attempt) for each in attempts)
                assert early[task].result(LIMIT_S) == written
                assert all_of(task) == written
    finally:
        cluster.stop()


def _kernel(cluster: ServedCluster, number: int) -> Any:
    """The kernel of the only task's attempt, while it runs."""
    return next(
        (
            kernel.id
            for kernel in cluster.plane.live.kernels.values()
            if kernel.attempt == number and kernel.status == "RUNNING"
        ),
        None,
    )
