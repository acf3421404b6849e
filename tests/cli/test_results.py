"""`muster results`: a row for each task, with its values and what it left."""

import json

from tests.cli.fake_cluster import FakeCluster, job, kernel, task

from muster.core.states import TaskState


def sweep() -> FakeCluster:
    tasks = [
        task(
            index,
            state,
            (kernel(result=result, exit_code=0),),
            parameters={"lr": lr, "seed": "1"},
            started_at=10.0,
            finished_at=12.5,
            exit_code=0,
        )
        for index, (lr, state, result) in enumerate(
            [
                ("0.1", TaskState.SUCCEEDED, '{"loss": 0.5, "note": "a, b"}'),
                ("0.2", TaskState.SUCCEEDED, "plain text\n"),
                ("0.3", TaskState.FAILED, None),
            ]
        )
    ]
    return FakeCluster(jobs_=[job("sweep", tasks_total=3)], tasks_=tasks)


def test_table_has_values_states_and_keys_of_results() -> None:
    lines = sweep().run("results", "sweep").stdout.splitlines()
    assert lines[0].split() == [
        *("TASK", "LR", "SEED", "STATE", "EXIT", "SECONDS", "LOSS", "NOTE", "RESULT")
    ]
    assert lines[1].split() == ["0", "0.1", "1", "succeeded", "0", "2.5", "0.5", "a,", "b"]
    assert lines[3].split() == ["2", "0.3", "1", "failed", "0", "2.5"]


def test_csv_and_json_have_the_same() -> None:
    text = sweep().run("results", "sweep", "--csv").stdout
    assert text.splitlines() == [
        "task,lr,seed,state,exit,seconds,loss,note,result",
        '0,0.1,1,succeeded,0,2.5,0.5,"a, b",',
        "1,0.2,1,succeeded,0,2.5,,,plain text",
        "2,0.3,1,failed,0,2.5,,,",
    ]
    rows = json.loads(sweep().run("results", "sweep", "--json", "--where", "lr=0.2").stdout)
    assert [row["result"] for row in rows] == ["plain text"]


def test_result_does_not_stand_for_what_the_cluster_says() -> None:
    left = kernel(result='{"state": "succeeded", "lr": 9, "task": 7}', exit_code=1)
    failed = task(0, TaskState.FAILED, (left,), parameters={"lr": "0.1"})
    cluster = FakeCluster(jobs_=[job("sweep")], tasks_=[failed])
    (row,) = json.loads(cluster.run("results", "sweep", "--json").stdout)
    assert (row["task"], row["state"], row["lr"]) == (0, "failed", "0.1")
    assert (row["result.state"], row["result.lr"], row["result.task"]) == ("succeeded", 9, 7)


def test_one_task_has_no_table() -> None:
    refused = sweep().run("results", "sweep/1")
    assert refused.exit_code == 2
    assert "is one task" in refused.stderr
