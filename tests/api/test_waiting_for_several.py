"""One wait for several pieces of work, whatever their kinds."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from tests.api.served import BOB, LARGE, LIMIT_S, ServedCluster
from tests.cli.deployed import passing_time

from muster.client import AsyncClient, Client, InvalidSpec, NotFound
from muster.core.views.base import RecordView

T = TypeVar("T")
SMALL: dict[str, Any] = {"command": ["true"], "resources": {"cpu": "10m"}}
SESSION = {"kind": "session", "name": "nb", "kernels": [SMALL]}
WEB = {"name": "web", **SMALL, "drain": 0}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedCluster]:
    cluster = ServedCluster(tmp_path, {"a1": LARGE})
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def client(cluster: ServedCluster) -> Iterator[Client]:
    with cluster.client() as client:
        yield client


@pytest.fixture(scope="module")
def odd_waits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    cluster = ServedCluster(tmp_path_factory.mktemp("cluster"), {"a1": LARGE})
    cluster.start()
    headers = {"Authorization": f"Bearer {cluster.token()}"}
    with httpx.Client(base_url=cluster.url, headers=headers) as client:
        yield client
    cluster.stop()


def meanwhile(cluster: ServedCluster, wait: Callable[[], T], act: Callable[[], object]) -> T:
    """The answer of a wait that had reached the server before ``act``."""
    before = cluster.call(cluster.requests_under_way)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        cluster.until(lambda: cluster.requests_under_way() > before or waiting.done())
        assert not waiting.done()
        act()
        return waiting.result(LIMIT_S)


def test_all_are_waited_for_and_told_as_they_end(cluster: ServedCluster, client: Client) -> None:
    job, other = client.submit(**SMALL, name="train"), client.submit(**SMALL)
    session = client.submit(SESSION)
    told: list[str] = []
    client.cancel(other)

    def wait() -> list[RecordView]:
        with cluster.client() as waiter:
            return waiter.wait_for(
                "train", other, session, on_end=lambda record: told.append(record.id)
            )

    def end() -> None:
        cluster.until(lambda: told == [other.id])
        client.cancel(session)
        client.cancel(job)

    over = meanwhile(cluster, wait, end)
    assert told == [each.id for each in over]
    assert sorted(told) == sorted([job.id, other.id, session.id])
    assert {each.exit_code for each in over} == {130}  # type: ignore[attr-defined]


def test_any_waits_for_the_first_alone(cluster: ServedCluster, client: Client) -> None:
    slow, quick = client.submit(**SMALL), client.submit(SESSION)

    def wait() -> list[RecordView]:
        with cluster.client() as waiter:
            return waiter.wait_for(slow, quick, any=True)

    over = meanwhile(cluster, wait, lambda: client.cancel(quick))
    assert [each.id for each in over] == [quick.id]
    assert client.wait_for(slow, quick, any=True) == over


def test_deployment_is_over_once_it_is_healthy(cluster: ServedCluster, client: Client) -> None:
    client.deploy(WEB)
    with passing_time(cluster):
        (found,) = client.wait_for("web", timeout_s=LIMIT_S)
    assert found.succeeded  # type: ignore[attr-defined]


def test_deployment_that_will_not_be_healthy_is_over(
    cluster: ServedCluster, client: Client
) -> None:
    client.deploy(WEB)
    with passing_time(cluster):
        client.wait_for("web", timeout_s=LIMIT_S)
        client.deploy({**WEB, "resources": {"cpu": "64"}, "update": {"progress_deadline": 5}})
        (found,) = client.wait_for("web", timeout_s=LIMIT_S)
    assert found.succeeded is False  # type: ignore[attr-defined]


def test_wait_that_is_over_before_answers_with_those_that_ended(client: Client) -> None:
    live, ended = client.submit(**SMALL), client.submit(**SMALL)
    client.cancel(ended)
    assert [each.id for each in client.wait_for(live, ended, timeout_s=0.05)] == [ended.id]
    assert client.wait_for() == []


def test_names_stand_for_the_records_that_had_them(cluster: ServedCluster, client: Client) -> None:
    first = client.submit(**SMALL, name="train")

    def wait() -> list[RecordView]:
        with cluster.client() as waiter:
            return waiter.wait_for("train", first.id)

    def replace() -> None:
        client.cancel(first)
        client.submit(**SMALL, name="train")

    assert [each.id for each in meanwhile(cluster, wait, replace)] == [first.id]


def test_others_work_and_what_does_not_exist_is_not_waited_for(
    cluster: ServedCluster, client: Client
) -> None:
    job = client.submit(**SMALL)
    with cluster.client(BOB) as bob:
        for ref in (job.id, job.name, "nothing"):
            with pytest.raises(NotFound, match="there is no job, session or deployment"):
                bob.wait_for(ref, timeout_s=0)
    with pytest.raises(NotFound, match="there is no job, session or deployment 'a1'"):
        client.wait_for("a1")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"refs": []},
        {"refs": [""]},
        {"refs": ["x" * 101]},
        {"refs": ["x"] * 1001},
        {"refs": ["x"], "timeout_s": -1},
        {"refs": ["x"], "timeout_s": 61},
        {"refs": "x"},
    ],
)
def test_odd_waits_are_refused(odd_waits: httpx.Client, body: object) -> None:
    assert odd_waits.post("/v1/wait", json=body).status_code == 422


def test_too_many_are_refused_by_a_sentence(client: Client) -> None:
    with pytest.raises(InvalidSpec, match="refs"):
        client.wait_for(*(f"job-{n}" for n in range(1001)))


async def test_asynchronous_wait_is_the_same(cluster: ServedCluster) -> None:
    async with AsyncClient(cluster.url, cluster.token()) as client:
        jobs = [await client.submit(**SMALL) for _ in range(2)]
        waiting = asyncio.create_task(client.wait_for(*jobs, any=True))
        await client.cancel(jobs[1])
        assert [each.id for each in await waiting] == [jobs[1].id]
