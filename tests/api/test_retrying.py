"""Sweeps of which some tasks fail: that they go on, what failed, and running that again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from proving.hollow.supervisor import Run
from tests.api.served import BOB, LARGE, ServedCluster
from tests.control.driven_agent import task_index

from muster.client import Client
from muster.core.errors import Conflict, InvalidSpec, NotFound
from muster.core.states import JobState, TaskState
from muster.core.views.work import JobView
from muster.wire.messages import Start

SWEEP = {"command": ["sweep"], "resources": {"cpu": "100m"}, "timeout": 100}


def behaviour(start: Start) -> Run:
    """By the program: ``well`` succeeds, and so does a check of a machine on which several jobs
    failed; of others 3 and 7 to 9 exit with an error, 5 runs long."""
    if start.template.command[0] == "well" or start.template.service is not None:
        return Run(1.0)
    match task_index(start):
        case 3:
            return Run(1.0, exit_code=2)
        case 7 | 8 | 9:
            return Run(2.0, exit_code=1)
        case 5:
            return Run(1e9)
    return Run(1.0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    path: Path = tmp_path_factory.mktemp("cluster")
    cluster = ServedCluster(path, {"a1": LARGE, "a2": LARGE}, behaviour=behaviour)
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def ada(cluster: ServedCluster) -> Iterator[Client]:
    with cluster.client() as client:
        yield client


@pytest.fixture(scope="module")
def ended(cluster: ServedCluster) -> JobView:
    """A sweep of twelve that went on."""
    with cluster.client() as client:
        job = client.submit(SWEEP | {"tasks": 12, "keep_going": True, "name": "sweep"})
        finish(cluster)
        return client.job(job.id)


def finish(cluster: ServedCluster) -> None:
    for _ in range(30):
        cluster.pass_time(5.0)


def test_why_tells_once_how_the_first_task_that_failed_ended(ada: Client, ended: JobView) -> None:
    told = ada.why(ended.id)
    (agent,) = {each.agent for each in ada.task(ended.id, 3).attempts}
    assert told.details == (f"task 3 ran on {agent}",)
    assert [each.sentence for each in told.reasons] == [
        "task 3 and 3 more failed; task 3: exited with code 2"
    ]
    assert told.output == "sweep/3"


def test_sweep_that_keeps_going_runs_all_of_its_tasks(ended: JobView) -> None:
    assert ended.state is JobState.FAILED
    assert ended.counts == {TaskState.SUCCEEDED: 7, TaskState.FAILED: 4, TaskState.KILLED: 1}
    assert ended.reason is not None
    assert ended.reason.sentence == "task 3 and 3 more failed; task 3: exited with code 2"
    assert ended.reason.remedy == "`muster retry sweep --failed` runs again what failed."


def test_sweep_that_stops_says_which_task_stopped_it_and_what_to_do(
    cluster: ServedCluster, ada: Client
) -> None:
    job = ada.submit(SWEEP | {"tasks": 12, "name": "short"})
    finish(cluster)
    reason = ada.job(job.id).reason
    assert reason is not None
    assert reason.sentence == (
        "stopped because task 3 and 3 more failed and max_task_failures is 0; task 3: exited with "
        "code 2"
    )
    assert "--keep-going" in reason.remedy
    assert "muster retry short --failed" in reason.remedy


def test_sweep_that_is_cancelled_ends_though_it_keeps_going(
    cluster: ServedCluster, ada: Client
) -> None:
    job = ada.submit(SWEEP | {"tasks": 5000, "keep_going": True, "not_before": 2**39})
    ada.cancel(job.id)
    finish(cluster)
    assert ada.job(job.id).state is JobState.KILLED


def test_tasks_that_failed_alike_are_told_together(ada: Client, ended: JobView) -> None:
    page = ada.failures(ended.id)
    told = [(each.tasks, each.such_as, each.exit_code, each.state) for each in page.items]
    assert told == [
        (3, (7, 8, 9), 1, TaskState.FAILED),
        (1, (3,), 2, TaskState.FAILED),
        (1, (5,), None, TaskState.KILLED),
    ]
    assert page.others == 0


def test_tasks_that_failed_are_listed_with_their_attempts(ada: Client, ended: JobView) -> None:
    page = ada.tasks(ended.id, failed=True, offset=1, limit=3)
    assert page.total == 5
    assert [task.index for task in page.items] == [5, 7, 8]
    assert all(task.attempts[0].agent in ("a1", "a2") for task in page.items)


def test_retry_runs_what_failed_again_under_the_same_indexes(
    cluster: ServedCluster, ada: Client, ended: JobView
) -> None:
    again = ada.retry(ended.id, failed=True)
    assert (again.name, again.retry_of) == ("sweep-retry-1", ended.id)
    assert (again.tasks_total, again.task_count) == (5, 12)
    with pytest.raises(Conflict, match="retried already, by sweep-retry-1"):
        ada.retry(ended.id)
    finish(cluster)
    tasks = ada.tasks(again.id, limit=3).items
    assert [(task.index, task.attempt, task.state) for task in tasks] == [
        (3, 1, TaskState.FAILED),
        (5, 1, TaskState.KILLED),
        (7, 1, TaskState.FAILED),
    ]
    assert [task.index for task in ada.tasks(again.id, offset=3).items] == [8, 9]
    assert ada.task(again.id, 9).attempts[0].task_index == 9
    with pytest.raises(NotFound, match="it runs only tasks 3,5,7-9"):
        ada.task(again.id, 4)
    detail = ada.job(again.id)
    assert detail.spec["only"] == "3,5,7-9"
    assert ada.job(ended.id).retried_by == (again.id,)
    third = ada.retry(again.id, failed=True)
    assert third.name == "sweep-retry-2"
    finish(cluster)


def test_retry_has_what_is_left_of_the_failures_that_are_tolerated(
    cluster: ServedCluster, ada: Client
) -> None:
    job = ada.submit(SWEEP | {"tasks": 12, "only": "0-3,7-9", "max_task_failures": 9})
    finish(cluster)
    assert ada.job(job.id).state is JobState.SUCCEEDED

    again = ada.retry(job.id, failed=True)
    finish(cluster)
    found = ada.job(again.id)
    assert found.spec["max_task_failures"] == 5
    assert (found.state, found.counts) == (JobState.FAILED, {TaskState.FAILED: 4})
    assert found.reason is not None
    assert found.reason.sentence == (
        "task 3 and 3 more failed and none succeeded; task 3: exited with code 2"
    )

    third = ada.retry(again.id, failed=True)
    finish(cluster)
    assert ada.job(third.id).spec["max_task_failures"] == 1
    assert ada.job(third.id).state is JobState.FAILED
    fourth = ada.retry(third.id)
    finish(cluster)
    assert ada.job(fourth.id).spec.get("max_task_failures", 0) == 0


def test_job_that_runs_again_whole_has_all_of_the_failures_that_it_tolerates(
    cluster: ServedCluster, ada: Client
) -> None:
    job = ada.submit(SWEEP | {"tasks": 10, "only": "7-9", "max_task_failures": 1})
    alone = ada.submit({"command": ["x"], "tasks": 4, "only": "3", "max_task_failures": 2})
    finish(cluster)
    assert ada.job(ada.retry(job.id).id).spec.get("max_task_failures", 0) == 0
    assert ada.job(alone.id).state is JobState.FAILED
    gang = {"command": ["x"], "tasks": 4, "coscheduled": True, "max_task_failures": 2}
    whole = ada.submit(gang)
    finish(cluster)
    assert ada.job(ada.retry(whole.id).id).spec["max_task_failures"] == 2
    finish(cluster)


def test_retry_without_more_runs_all_that_did_not_succeed(
    cluster: ServedCluster, ada: Client
) -> None:
    job = ada.submit(SWEEP | {"tasks": 1000, "name": "large"})
    finish(cluster)
    counts = ada.job(job.id).counts
    again = ada.retry(job.id)
    assert again.tasks_total == 1000 - counts[TaskState.SUCCEEDED]
    ada.cancel(again.id)
    finish(cluster)
    assert ada.job(again.id).counts == {TaskState.KILLED: again.tasks_total}


def test_retried_tasks_know_the_count_that_they_were_of(
    cluster: ServedCluster, ada: Client
) -> None:
    seen: list[tuple[str, str]] = []
    before = cluster.behaviour

    def noting(start: Start) -> Run:
        seen.append((start.env["MUSTER_TASK_INDEX"], start.env["MUSTER_TASK_COUNT"]))
        return Run(0.5)

    cluster.behaviour = noting
    try:
        job = ada.submit({"command": ["x"], "tasks": 100, "only": "8,3-4"})
        finish(cluster)
    finally:
        cluster.behaviour = before
    assert sorted(seen) == [("3", "100"), ("4", "100"), ("8", "100")]
    assert ada.job(job.id).state is JobState.SUCCEEDED


def test_retry_of_what_runs_is_well_or_is_anothers_is_refused(
    cluster: ServedCluster, ada: Client, ended: JobView
) -> None:
    runs = ada.submit({"command": ["well"], "not_before": 2**39})
    with pytest.raises(Conflict, match="it can be retried once it has ended"):
        ada.retry(runs.id)
    ada.cancel(runs.id)
    well = ada.submit({"command": ["well"], "tasks": 2})
    finish(cluster)
    with pytest.raises(Conflict, match="all of its tasks succeeded"):
        ada.retry(well.id)
    with cluster.client(BOB) as bob, pytest.raises(NotFound):
        bob.retry(ended.id)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"only": "3,x"}, "such as '3,17,40-45'"),
        ({"only": "12"}, "below tasks"),
        ({"only": "1", "coscheduled": True}, "a gang runs whole"),
        ({"keep_going": True, "coscheduled": True}, "a gang ends as one"),
    ],
)
def test_choice_of_tasks_that_cannot_be_meant_is_refused(
    ada: Client, keys: dict[str, object], told: str
) -> None:
    with pytest.raises(InvalidSpec, match=told):
        ada.submit(SWEEP | {"tasks": 12} | keys)


def test_retry_runs_with_changed_limits_and_keeps_the_rest(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        job = client.submit(
            {**SWEEP, "name": "small", "tasks": 4, "env": {"A": "1", "B": "2"}, "priority": 40}
        )
        cluster.pass_time(10.0)
        assert client.wait(job, 20).state is JobState.FAILED
        again = client.retry(
            job,
            changes={"timeout": "2h", "resources": {"memory": "64MiB"}, "env": {"B": "3"}},
        )
        spec = client.job(again).spec
        assert (spec["timeout"], spec["priority"], spec["only"]) == (7200.0, 40, "3")
        assert spec["resources"] == {"cpu": "100m", "memory": 64 * 2**20}
        assert {name: spec["env"][name] for name in ("A", "B")} == {"A": "1", "B": "3"}
        assert client.job(job).spec["timeout"] == 100.0, "the ended job stays as it is"
        client.cancel(again)


def test_changes_of_a_retry_that_are_wrong_are_refused_whole(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        job = client.submit({**SWEEP, "name": "wrong", "tasks": 4})
        cluster.pass_time(10.0)
        client.wait(job, 20)
        for changes, fields in (
            ({"tasks": 9, "environment": "clean"}, ["tasks", "environment"]),
            ({"timeout": "soon"}, ["timeout"]),
            ({"timeuot": 3}, ["timeuot"]),
        ):
            with pytest.raises(InvalidSpec) as refused:
                client.retry(job, changes=changes)
            assert [each.field for each in refused.value.problems] == fields
        assert client.jobs("live", name="wrong*") == []
