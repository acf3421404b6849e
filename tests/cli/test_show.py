"""`muster show` describes work."""

import json

import msgspec
import pytest
from tests.cli.fake_cluster import IDS, NOW, FakeCluster, because, job, kernel, session, task
from tests.cli.rendered import narrow, shown, wide

from muster.cli.described.job import job_parts
from muster.cli.ends import shown_state
from muster.cli.words import moment
from muster.core.reasons import ReasonCode
from muster.core.states import JobState, KernelStatus, TaskState
from muster.core.views.base import ReasonView


def test_show_words_what_was_asked_for_as_a_person_would_write_it() -> None:
    spec = {
        "command": ["x"],
        "timeout": 3600.0,
        "not_before": NOW,
        "coscheduled": True,
        "recovery": {},
        "env": {"SECRET": "s"},
        "tasks": 20,
        "only": "0,4,8,12,16-17",
        "placement": {
            "constraints": [
                {"attribute": "zone", "values": ["a"]},
                {"attribute": "nvlink", "op": "EXISTS", "soft": True},
            ],
            "max_kernels_per_agent": 2,
            "agents": ["a1", "a2"],
        },
        "after": [{"on": "job-01kaec7mc2qv3x9p", "condition": "ended", "name": "prep"}],
    }
    asked = msgspec.structs.replace(job(state=JobState.PENDING), spec=spec)
    assert "env        clean; with SECRET" in shown(job_parts(wide(), asked, [], NOW))
    text = " ".join(" ".join(shown(job_parts(wide(), asked, [], NOW))).split())
    assert (
        f"timeout=1h00m; not_before={moment(NOW)}; coscheduled=true; recovery=true; "
        "only=0-12:4,16-17; after=prep:ended; constraints=zone=a, nvlink (soft); "
        "max_kernels_per_agent=2; agents=a1, a2"
    ) in text


def test_show_tells_where_each_attempt_ran_and_how_it_ended() -> None:
    exited = because(ReasonCode.EXITED, exit_code=3)
    killed = because(ReasonCode.SIGNALED, signal=9)
    attempts = (kernel(1, exit_code=3, reason=exited), kernel(2, signal=9, reason=killed))
    cluster = FakeCluster(
        jobs_=[job("prep", JobState.FAILED, {TaskState.FAILED: 1, TaskState.PENDING: 1})],
        tasks_=[task(0, TaskState.FAILED, attempts, reason=killed), task(1, TaskState.PENDING)],
    )
    lines = cluster.run("show", "prep").stdout.splitlines()
    assert lines[0] == f"prep  failed  {IDS[0]}"
    assert "command    python train.py" in lines
    assert "each asks  2 cpu, 1 gpu" in lines
    rows = [line.split() for line in lines[-3:]]
    assert rows[0][:5] == ["0", "1", "failed", "agent-1", "1"]
    assert rows[0][-5:] == ["3", "exited", "with", "code", "3"]
    assert rows[1][:5] == ["0", "2", "failed", "agent-2", "2"]
    assert rows[1][-5:] == ["SIGKILL", "ended", "by", "signal", "9"]
    assert rows[2] == ["1", "-", "pending"]
    shown_tasks = cluster.json("show", "prep", "--json")["tasks"]
    codes = [[each["exit_code"] for each in shown["attempts"]] for shown in shown_tasks]
    assert codes == [[3, None], []]


@pytest.mark.parametrize(
    ("reason", "exit_code", "state"),
    [
        (because(ReasonCode.EXITED, exit_code=0), 0, TaskState.SUCCEEDED),
        (because(ReasonCode.EXITED, exit_code=3), 3, TaskState.FAILED),
        (because(ReasonCode.STOPPED, detail="not wanted"), 0, TaskState.KILLED),
        (because(ReasonCode.CANCELLED, by="ann"), 143, TaskState.KILLED),
        (because(ReasonCode.DRAINED, agent="a", note=""), 0, TaskState.WORKER_FAILED),
        (because(ReasonCode.PREEMPTED, priority=90), None, TaskState.WORKER_FAILED),
    ],
)
def test_attempt_that_was_ended_by_others_is_shown_so_whatever_code_it_exited_with(
    reason: ReasonView, exit_code: int | None, state: TaskState
) -> None:
    assert shown_state(kernel(exit_code=exit_code, reason=reason)) == state


def test_show_of_ten_thousand_tasks_sums_up_and_lists_what_went_wrong() -> None:
    counts = {TaskState.SUCCEEDED: 9_000, TaskState.FAILED: 3, TaskState.RUNNING: 997}
    tasks = [task(index, TaskState.SUCCEEDED) for index in range(300)]
    tasks += [task(index, TaskState.FAILED, exit_code=1) for index in (300, 301, 302)]
    tasks += [task(index, TaskState.RUNNING) for index in range(303, 400)]
    cluster = FakeCluster(jobs_=[job("sweep", counts=counts)], tasks_=tasks)
    lines = cluster.run("show", "sweep").stdout.splitlines()
    assert "tasks      10,000: 997 running, 9,000 succeeded, 3 failed" in lines
    assert [line.split()[0] for line in lines if line.split()[2:3] == ["failed"]] == [
        "300",
        "301",
        "302",
    ]
    assert lines[-1].startswith("10 of 10,000 tasks shown")
    listed = cluster.run("show", "sweep", "--tasks", "--limit", "20").stdout.splitlines()
    assert [line.split()[0] for line in listed[-21:-1]] == [str(index) for index in range(20)]
    assert listed[-1] == "20 of 10,000 tasks shown; --tasks --offset 20 lists the next"


def test_show_with_a_limit_or_an_offset_alone_lists_that_page() -> None:
    counts = {TaskState.SUCCEEDED: 3000}
    tasks = [task(index) for index in range(3000)]
    cluster = FakeCluster(jobs_=[job("sweep", counts=counts)], tasks_=tasks)

    def listed(*words: str) -> tuple[int, int, int]:
        found = json.loads(cluster.run("show", "sweep", "--json", *words).stdout)
        of_job = found if isinstance(found, list) else found["tasks"]
        return of_job[0]["index"], of_job[-1]["index"], len(of_job)

    assert listed() == (0, 999, 1000)
    assert listed("--offset", "2500") == (2500, 2999, 500)
    assert listed("--offset", "20", "--limit", "5") == (20, 24, 5)
    assert listed("--offset", "20", "--tasks") == (20, 119, 100)
    lines = cluster.run("show", "sweep", "--offset", "2990").stdout.splitlines()
    assert [line.split()[0] for line in lines[-12:-1]] == ["TASK", *map(str, range(2990, 3000))]


def test_show_of_one_task_is_its_attempts() -> None:
    attempts = (kernel(ended_at=None),)
    cluster = FakeCluster(jobs_=[job("sweep")], tasks_=[task(7, TaskState.RUNNING, attempts)])
    lines = cluster.run("show", "sweep/7").stdout.splitlines()
    assert lines[1].split()[:4] == ["7", "1", "running", "agent-1"]


def test_show_of_a_session_lists_its_kernels() -> None:
    notebook = session()
    lines = FakeCluster(sessions_=[notebook]).run("show", notebook.id).stdout.splitlines()
    assert lines[0] == "notebook  terminated  ses-01kaec7mc2qv3x9p"
    assert lines[-1].split()[:3] == ["0", "succeeded", "agent-1"]


def test_show_never_leaves_an_error_without_its_reason() -> None:
    lost = kernel(1, status=KernelStatus.ERROR)
    silent = kernel(2, status=KernelStatus.ERROR, reason=because(ReasonCode.AGENT_LOST, agent="a"))
    alone = session(kernels=(lost,))
    cluster = FakeCluster(
        jobs_=[job("prep", JobState.PENDING)],
        tasks_=[task(0, TaskState.PENDING, (lost, silent))],
        sessions_=[alone],
    )
    *_, first, last = cluster.run("show", "prep").stdout.splitlines()
    assert first.endswith("lost with its agent agent-1")
    assert last.endswith("agent a was silent until the kernel's lease ran out")
    assert cluster.run("show", alone.id).stdout.rstrip().endswith("lost with its agent agent-1")


def test_show_puts_no_line_break_into_a_command() -> None:
    words = [f"--option-{number}=value" for number in range(20)]
    long = job(spec={"command": ["python", "train.py", *words]})
    lines = shown(job_parts(narrow(60), long, [], NOW), 60)
    assert f"command    python train.py {' '.join(words)}" in lines
    script = job(spec={"command": ["/bin/sh", "-c", "cd /data\nmake"]})
    lines = shown(job_parts(narrow(60), script, [], NOW), 60)
    assert lines[2:4] == ["command    cd /data", "           make"]


def test_show_names_variables_and_never_their_values() -> None:
    hidden = job(spec={"command": ["true"], "env": {"TOKEN": "s3cret"}, "grace": 5})
    text = "\n".join(shown(job_parts(wide(), hidden, [], NOW)))
    assert "env        clean; with TOKEN" in text
    assert text.count("TOKEN") == 1
    assert "s3cret" not in text
