"""Single tasks of a job are stopped over HTTP."""

from collections.abc import Iterator

import pytest
from tests.api.served import LARGE, ServedCluster

from muster.client import Client
from muster.core.errors import Conflict, NotFound

WAITS = {"command": ["sleep", "1000"], "resources": {"cpu": 999}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    cluster = ServedCluster(tmp_path_factory.mktemp("cluster"), {"a1": LARGE})
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def ada(cluster: ServedCluster) -> Iterator[Client]:
    with cluster.client() as client:
        yield client


def test_one_task_is_stopped_once_and_the_history_says_by_whom(ada: Client) -> None:
    job = ada.submit(WAITS | {"name": "sweep", "tasks": 3})
    stopped = ada.cancel_task("sweep", 1)
    named = f"task 1 of job sweep ({job.id})"
    assert (stopped.id, stopped.status, stopped.changed) == (f"{job.id}/1", "KILLED", True)
    assert stopped.message == f"{named} is stopped"
    again = ada.cancel_task(job.id, 1)
    assert not again.changed
    assert again.message == f"{named} had ended already: it is killed"
    task = ada.task(job.id, 1)
    assert task.reason is not None
    assert task.reason.sentence == "task 1 was stopped by ada"
    assert not ada.job(job.id).ended
    codes = [reason.code for entry in ada.history(job.id).items for reason in entry.reasons]
    assert "TASK_STOPPED" in codes
    ada.cancel_task(job.id, 0)
    ada.cancel_task(job.id, 2)
    assert (ada.job(job.id).ended, ada.job(job.id).state) == (True, "KILLED")


def test_tasks_that_are_not_there_and_those_of_gangs_are_refused(ada: Client) -> None:
    sweep = ada.submit(WAITS | {"tasks": 2})
    with pytest.raises(NotFound):
        ada.cancel_task(sweep.id, 2)
    gang = ada.submit(WAITS | {"tasks": 2, "coscheduled": True})
    with pytest.raises(Conflict, match="run together"):
        ada.cancel_task(gang.id, 0)
