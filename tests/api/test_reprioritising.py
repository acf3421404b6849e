"""Another priority over HTTP: what is accepted, what is refused, and what is told of it."""

from collections.abc import Iterator

import httpx
import pytest
from tests.api.served import ADMIN, LARGE, ServedCluster

from muster.client import AsyncClient, Client
from muster.core.errors import Conflict, InvalidSpec, NotFound
from muster.core.owner import Role

WAITS = {"command": ["sleep", "1000"], "resources": {"cpu": 999}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    cluster = ServedCluster(tmp_path_factory.mktemp("cluster"), {"a1": LARGE})
    cluster.start()
    with cluster.client(ADMIN, Role.ADMIN) as root:
        root.put_quota({"level": "user", "name": "*/*/*", "max_priority": 80})
    yield cluster
    cluster.stop()


@pytest.fixture
def ada(cluster: ServedCluster) -> Iterator[Client]:
    with cluster.client() as client:
        yield client


def test_job_and_session_get_another_priority_and_say_so(ada: Client) -> None:
    job = ada.submit(WAITS | {"name": "train", "priority": 20})
    changed = ada.reprioritise("train", 80)
    assert changed.message == f"job train ({job.id}) has priority 80 now, before it was 20"
    assert (changed.id, changed.status, changed.priority) == (job.id, "PENDING", 80)
    assert ada.job(job.id).spec["priority"] == 80
    session = ada.submit({"kind": "session", "kernels": [WAITS]})
    changed = ada.reprioritise(session.id, 0)
    assert changed.message == f"session {session.id} has priority 0 now, before it was 50"
    assert ada.session(session.id).priority == 0
    for each in (job, session):
        (entry,) = [
            entry
            for entry in ada.history(each.id).items
            if any(reason.code == "REPRIORITISED" for reason in entry.reasons)
        ]
        assert entry.entity == each.id
        ada.cancel(each.id)


def test_same_priority_is_no_change(ada: Client) -> None:
    job = ada.submit(WAITS | {"name": "again"})
    assert ada.reprioritise(job.id, 80).changed
    again = ada.reprioritise(job.id, 80)
    assert not again.changed
    assert again.message == f"job again ({job.id}) has priority 80 already"
    ada.cancel(job.id)


def test_admin_is_named_in_the_history_of_anothers_work(
    cluster: ServedCluster, ada: Client
) -> None:
    job = ada.submit(WAITS)
    with cluster.client(ADMIN, Role.ADMIN) as admin:
        admin.reprioritise(job.id, 5)
    sentences = [why.sentence for each in ada.history(job.id).items for why in each.reasons]
    assert f"priority 50 → 5, by {ADMIN.user}" in sentences
    ada.cancel(job.id)


def test_ended_work_is_refused_with_its_end(ada: Client) -> None:
    job = ada.submit(WAITS | {"name": "over"})
    session = ada.submit({"kind": "session", "kernels": [WAITS]})
    for each in (job, session):
        ada.cancel(each.id)
    said = rf"job over \({job.id}\) has ended: it is killed, and its priority no longer counts"
    with pytest.raises(Conflict, match=said):
        ada.reprioritise("over", 80)
    with pytest.raises(Conflict, match="it is cancelled"):
        ada.reprioritise(session.id, 80)


def test_session_of_a_job_is_refused_with_advice(ada: Client) -> None:
    job = ada.job(ada.submit(WAITS).id)
    session = next(each for each in ada.sessions(of_jobs=True) if each.job_id == job.id)
    with pytest.raises(Conflict, match=f"belongs to job {job.name}: change the priority of that"):
        ada.reprioritise(session.id, 80)
    ada.cancel(job.id)


@pytest.mark.parametrize("priority", ["-1", "101", "50.5", "true", '"80"', "null", "1e400", "[8]"])
def test_what_is_no_priority_is_refused_as_it_is_at_submission(
    cluster: ServedCluster, ada: Client, priority: str
) -> None:
    job = ada.submit(WAITS)
    headers = {"Authorization": f"Bearer {cluster.token()}"}
    bodies = f'{{"priority": {priority}}}', f'{{"command": ["x"], "priority": {priority}}}'
    paths = f"/v1/jobs/{job.id}/reprioritise", "/v1/jobs"
    refused = [
        httpx.post(cluster.url + path, headers=headers, content=body)
        for path, body in zip(paths, bodies, strict=True)
    ]
    assert [each.status_code for each in refused] == [refused[1].status_code] * 2
    assert [each.json().get("problems") for each in refused] == [refused[1].json()["problems"]] * 2
    assert ada.job(job.id).spec.get("priority", 50) == 50
    ada.cancel(job.id)


def test_unknown_work_and_wrong_priorities_are_typed_errors(ada: Client) -> None:
    with pytest.raises(NotFound, match="there is no job or session 'nothing'"):
        ada.reprioritise("nothing", 80)
    job = ada.submit(WAITS)
    with pytest.raises(InvalidSpec, match="priority"):
        ada.reprioritise(job.id, 101)
    ada.cancel(job.id)


async def test_asynchronous_client_has_it_too(cluster: ServedCluster, ada: Client) -> None:
    job = ada.submit(WAITS)
    async with AsyncClient(cluster.url, cluster.token()) as client:
        assert (await client.reprioritise(job.id, 60)).changed
    ada.cancel(job.id)
