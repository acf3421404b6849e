"""The API's answers to strangers and other owners, and to `why`."""

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from tests.e2e.cluster import Cluster, agent, started

from muster.client import Unauthenticated
from muster.core.errors import NotFound
from muster.core.reasons import ReasonKind
from muster.core.states import JobState


@dataclass(frozen=True)
class World:
    cluster: Cluster
    ada: str
    eve: str


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two agents with four GPUs each, and the tokens of two users."""
    path = tmp_path_factory.mktemp("api") / "home"
    agents = [agent(name, cpu_milli=16_000, gpus="4xH100") for name in ("one", "two")]
    cluster = Cluster(path, agents)
    with started(cluster):
        yield World(cluster, cluster.add_user("ada"), cluster.add_user("eve"))


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Bearer", "Basic abc", "wrong"])
def test_request_without_a_right_token_is_401(world: World, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    url = f"http://127.0.0.1:{world.cluster.port}/v1/jobs"
    answer = httpx.get(url, headers=headers)
    assert answer.status_code == 401
    assert "token" in answer.json()["error"]
    assert httpx.post(url, headers=headers, json={"command": "true"}).status_code == 401
    with world.cluster.client("wrong") as client, pytest.raises(Unauthenticated, match="token"):
        client.jobs()
    with world.cluster.client() as admin:
        assert admin.jobs("all", name="true-1") == []


def test_job_of_another_owner_is_404_whatever_is_asked_of_it(world: World) -> None:
    with world.cluster.client(world.ada) as ada, world.cluster.client(world.eve) as eve:
        job = ada.submit(name="secret", command=["sleep", "1000"])
        for ref in (job.id, job.id[:12], "secret"):
            asks = (eve.job, eve.tasks, eve.why, eve.history, eve.cancel)
            for ask in (*asks, lambda ref: eve.task(ref, 0), lambda ref: list(eve.logs(ref))):
                with pytest.raises(NotFound):
                    ask(ref)
        headers = {"Authorization": f"Bearer {world.eve}"}
        url = f"http://127.0.0.1:{world.cluster.port}/v1/jobs/{job.id}"
        assert httpx.get(url, headers=headers).status_code == 404
        assert eve.jobs("all") == []
        mine = eve.submit(name="secret", command=["true"])
        assert mine.id != job.id, "another's name is not taken"
        assert not ada.job("secret").ended, "the cancel of another did nothing"
        ada.cancel("secret")
        assert ada.wait(job.id, 20.0).state == JobState.KILLED


def test_why_of_nine_gpus_where_agents_have_four_each_says_all_of_it(world: World) -> None:
    with world.cluster.client(world.ada) as client:
        job = client.submit(name="large", command=["true"], resources={"gpu": 9})
        why = client.why(job.id)
        client.cancel(job.id)
    (told,) = why.reasons
    assert told.kind == ReasonKind.REQUEST, "it is for the one who asks to change something"
    assert told.remedy
    assert "9" in told.sentence
    assert why.placement is not None
    assert why.placement.agents == 2, "agents that were looked at"
    (request,) = why.placement.requests
    assert request.request["gpu"] == 9000
    (group,) = request.groups
    assert group.agents == 2
    assert sorted(group.examples) == ["one", "two"]
    (lacking,) = group.shortfalls
    assert (lacking.code, lacking.sentence) == (
        "LACKS_CAPACITY",
        "gpu: 9 asked, the agent has 4",
    )
