"""Everyday lines against the real API: sweeps that fail, their retries, JSON, listings."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from proving.hollow.supervisor import Run
from tests.api.served import LARGE, ServedCluster
from tests.control.driven_agent import task_index

from muster.cli.cluster import Cluster
from muster.cli.program import app
from muster.core.ids import KernelId
from muster.core.owner import Role
from muster.wire.messages import Start

SWEEP = {"command": ["sweep"], "resources": {"cpu": "50m"}}


def behaviour(start: Start) -> Run:
    """``forever`` runs on; in a sweep each tenth task fails, and task 5 in its own way."""
    if start.template.command[0] == "forever":
        return Run(1e9)
    index = task_index(start)
    return Run(0.5, exit_code=7 if index == 5 else 1 if index % 10 == 0 else 0)


class Typed:
    """Commands typed to a served cluster."""

    def __init__(self, cluster: ServedCluster) -> None:
        self.cluster = cluster

    def run(self, *words: str, stdin: str = "", role: Role = Role.USER) -> Result:
        cluster = Cluster(self.cluster.url, self.cluster.token(role=role))
        return CliRunner().invoke(app, list(words), input=stdin, obj=cluster)

    def said(self, *words: str, stdin: str = "") -> str:
        """The stdout of a command, which must end well."""
        result = self.run(*words, stdin=stdin)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    def json(self, *words: str, stdin: str = "") -> Any:
        return json.loads(self.said(*words, stdin=stdin))

    def submit(self, **keys: Any) -> str:
        """The id of a job."""
        return self.said("submit", "-q", "-", stdin=json.dumps({**SWEEP, **keys})).strip()

    def finish(self) -> None:
        for _ in range(20):
            self.cluster.pass_time(2.0)


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typed]:
    path: Path = tmp_path_factory.mktemp("cluster")
    cluster = ServedCluster(path, {"a1": LARGE, "a2": LARGE}, behaviour=behaviour)
    cluster.start()
    yield Typed(cluster)
    cluster.stop()


@pytest.fixture(scope="module")
def swept(typed: Typed) -> str:
    """A sweep of a thousand tasks that has ended, of which 101 failed."""
    id_ = typed.submit(name="swept", tasks=1000, keep_going=True)
    for _ in range(20):
        typed.finish()
    return id_


def test_show_of_a_sweep_tells_failures_together(typed: Typed, swept: str) -> None:
    lines = typed.said("show", swept).splitlines()
    failures = [line for line in lines if "exited with code" in line and "tasks:" in line]
    assert [" ".join(line.split()) for line in failures] == [
        "failures 100 tasks: exited with code 1, such as 0, 10, 20"
    ]
    assert any(line.strip() == "task 5: exited with code 7" for line in lines)
    assert "`muster retry swept --failed` runs again what failed" in " ".join(lines)


def test_show_of_a_thousand_tasks_is_one_request_of_tasks(typed: Typed, swept: str) -> None:
    began_s = time.process_time()  # of the cluster too, which is in this process
    lines = typed.said("show", swept, "--tasks", "--limit", "1000").splitlines()
    assert sum("a1" in line or "a2" in line for line in lines) == 1000
    assert time.process_time() - began_s < 2.0, "one request a task takes more than that"


def test_show_of_tasks_goes_on_after_an_offset(typed: Typed, swept: str) -> None:
    tasks = typed.json("show", swept, "--tasks", "--offset", "990", "--limit", "5", "--json")
    assert [task["index"] for task in tasks] == [990, 991, 992, 993, 994]
    assert all(task["attempts"] for task in tasks)


def test_retry_is_linked_both_ways_in_show(typed: Typed, swept: str) -> None:
    again = typed.said("retry", "swept", "--failed", "-q").strip()
    assert ["retried", "by", again] in [
        line.split() for line in typed.said("show", swept).split("\n")
    ]
    shown = [line.split() for line in typed.said("show", again).splitlines()]
    assert ["retry", "of", swept] in shown
    assert shown[1][:2] == ["tasks", "101:"]
    typed.finish()
    refused = typed.run("retry", "swept/3")
    assert refused.exit_code == 2
    assert "one task: only jobs are retried" in refused.stderr


def test_run_says_in_json_how_the_job_ended(typed: Typed) -> None:
    accepted = typed.json("run", "-d", "--json", "--scratch", "--", "forever")
    assert accepted["name"].startswith("forever-")
    (cancelled,) = typed.json("cancel", "--json", accepted["id"])
    assert (cancelled["id"], cancelled["changed"]) == (accepted["id"], True)
    handed_in = typed.json("submit", "--json", "-", stdin=json.dumps(SWEEP))
    assert handed_in["tasks_total"] == 1
    typed.finish()


NOTEBOOK = {"kind": "session", "kernels": [{"command": ["forever"]}], "name": "notebook"}


def test_ps_lists_replicas_of_deployments_only_when_asked_for(typed: Typed) -> None:
    web = {"kind": "deployment", "name": "web", "command": ["forever"], "replicas": 2}
    alone = {**NOTEBOOK, "name": "web-alone", "type": "inference"}
    small = {"resources": {"cpu": "10m"}}
    typed.said("deploy", "-d", "-", stdin=json.dumps(web | small))
    typed.said("submit", "-q", "-", stdin=json.dumps(alone))
    typed.cluster.pass_time(2.0)

    def listed(*options: str) -> list[str]:
        found = typed.json("ps", "--name", "web-*", "--json", *options)
        return sorted(each["name"] for each in found)

    assert listed() == listed("-a") == ["web-alone"]
    assert listed("--replicas") == ["web-1", "web-1", "web-alone"]
    typed.said("cancel", "web", "web-alone")


def test_second_drain_keeps_what_is_not_given_anew(typed: Typed) -> None:
    def drained(*options: str) -> tuple[str, float | None]:
        said = typed.run("drain", "a2", *options, role=Role.ADMIN)
        assert said.exit_code == 0, said.stderr
        (agent,) = [each for each in typed.json("agents", "--json") if each["name"] == "a2"]
        assert agent["barred"] == "draining"
        return agent["bar_note"], agent["leave_by"]

    typed.run("cordon", "a2", "--reason", "loud fan", role=Role.ADMIN)
    try:
        note, leave_by = drained()
        assert (note, leave_by is not None) == ("loud fan", True), "an hour unless another is given"
        assert drained("--deadline", "5h")[1] != leave_by
        later = drained("--reason", "new disks")[1]
        assert drained() == ("new disks", later)
        why = typed.said("why", "a2")
        assert "`muster uncordon a2` has it take work again" in why
        assert re.search(r"what still runs there in 5h00m\s+is\s+stopped", why), why
        assert drained("--deadline", "never") == ("new disks", None)
        assert drained() == ("new disks", None)
    finally:
        typed.run("uncordon", "a2", role=Role.ADMIN)


def test_ps_lists_sessions_beside_jobs_and_filters_on_the_server(typed: Typed) -> None:
    typed.submit(name="keeps-1", command=["forever"])
    session = typed.said("submit", "-q", "-", stdin=json.dumps(NOTEBOOK)).strip()
    lines = [line.split() for line in typed.said("ps").splitlines()]
    assert lines[1][:3] == [session[:12], "notebook", "running"]
    assert lines[2][1:3] == ["keeps-1", "running"]
    named = typed.json("ps", "--name", "note*", "--json")
    assert [(each["kind"], each["id"]) for each in named] == [("session", session)]
    assert typed.json("ps", "-a", "--state", "failed", "--name", "swept", "--json")
    assert not typed.json("ps", "--group", "other", "--json")
    assert not typed.json("ps", "--owner", "bob", "--json")
    other = typed.run("ps", "--group", "other")
    assert other.exit_code == 1
    assert "there is no group 'other'; groups are: default" in other.stderr
    wrong = typed.run("ps", "--state", "bad")
    assert wrong.exit_code == 2
    assert "expected one of live, ended, all" in wrong.stderr
    typed.run("cancel", "-y", "notebook", "keeps-1")
    typed.finish()
    ended = typed.json("ps", "--state", "ended", "--json", "-n", "1")
    assert len(ended) == 1


def test_logs_say_what_rotation_took_away(typed: Typed) -> None:
    job = typed.submit(name="noisy", tasks=2, command=["forever"])
    with typed.cluster.client() as client:
        kernels = [task.kernel_id for task in client.tasks(job).items]
    for index, kernel in enumerate(kernels):
        assert kernel is not None
        typed.cluster.write(kernel, b"x" * 2**20 + b"kept %d\n" % index, ended=True)
    lost = typed.cluster.outputs[KernelId(str(kernels[1]))]
    lost.lost = 2**20
    shown = typed.run("logs", "noisy", "--task", "1")
    assert shown.stdout == "kept 1\n"
    assert shown.stderr == "1MiB before this were rotated away\n"
    both = typed.run("logs", "noisy")
    assert both.stdout.splitlines()[-1] == "1 | kept 1"
    assert both.stderr == "1: 1MiB before this were rotated away\n"
    typed.run("cancel", "noisy")


def test_logs_of_a_large_sweep_come_task_by_task(typed: Typed, swept: str) -> None:
    lines = typed.said("logs", swept, "--failed")
    assert lines == ""


def test_history_tells_of_tasks_in_plain_words(typed: Typed) -> None:
    id_ = typed.submit(name="told", tasks=2, command=["sweep"], max_retries_failure=1)
    typed.finish()
    lines = [" ".join(line.split()[2:]) for line in typed.said("history", id_).splitlines()[1:]]
    assert "task 0 goes back to the queue exited with code 1" in lines
    assert sum(line.startswith("task 0, attempt 1 started on a") for line in lines) == 1
    assert sum(line.startswith("task 0, attempt 2 started on a") for line in lines) == 1
    assert any(line.startswith("job failed stopped because task 0 failed") for line in lines)
    assert not any("is being prepared" in line for line in lines)
    assert "is being prepared" in typed.said("history", id_, "--all")
    words = typed.said("history", f"{id_}/1").splitlines()
    assert all("task 1" in line for line in words[1:])


def test_logs_of_a_job_that_runs_leave_out_what_has_not_begun(typed: Typed) -> None:
    job = typed.submit(name="wide", tasks=5, command=["forever"], resources={"cpu": 3})
    with typed.cluster.client() as client:
        begun = [task for task in client.tasks(job).items if task.attempts[-1:] and task.started_at]
    for task in begun:
        typed.cluster.write(str(task.kernel_id), b"here\n", ended=True)
    assert len(begun) == 2
    result = typed.run("logs", "wide")
    assert (result.exit_code, result.stdout) == (0, "0 | here\n1 | here\n")
    typed.run("cancel", "wide")


def test_logs_of_what_never_started_say_so_and_why(typed: Typed) -> None:
    typed.submit(name="huge", tasks=3, resources={"cpu": 3}, command=["forever"])
    typed.submit(name="lone", resources={"cpu": 4}, command=["forever"])
    typed.said(
        "submit", "-q", "-", stdin=json.dumps({**NOTEBOOK, "name": "desk", "after": ["lone"]})
    )
    waiting = typed.run("logs", "lone")
    assert (waiting.exit_code, waiting.stdout) == (1, "")
    typed.run("cancel", "-y", "desk", "lone", "huge")
    typed.finish()
    for ref, what in (("huge/2", "task 2"), ("lone", "task 0"), ("desk", "kernel 0")):
        for words in (("logs", ref), ("logs", ref, "-f")):
            result = typed.run(*words)
            said = f"{what} never started: cancelled by ada\n"
            assert (result.stdout, result.stderr) == ("", said), words
    none_failed = typed.run("logs", "huge", "--failed")
    assert none_failed.stderr == "no task failed after it had started\n"


def test_history_of_an_agent_tells_that_it_was_cordoned_and_why(typed: Typed) -> None:
    typed.run("cordon", "a1", "--reason", "loud fan", role=Role.ADMIN)
    typed.run("uncordon", "a1", role=Role.ADMIN)
    said = typed.run("history", "a1", role=Role.ADMIN).stdout
    lines = [" ".join(line.split()[2:]) for line in said.splitlines()]
    assert lines[1].startswith("agent joined group ")
    assert lines[2].startswith("agent cordoned by ")
    assert lines[2].endswith(" (loud fan): it takes nothing new")
    assert lines[3].startswith("agent takes work again, says ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cordon", "a1", "--reason", "two\nlines"), r"--reason is 'two\nlines': expected one"),
        (("drain", "a1", "--deadline", "soon"), "--deadline is 'soon': expected a duration"),
        (("run", "--gpu", "some", "--", "true"), "--gpu is 'some': expected a whole number"),
        (("run", "--env", "1A=x", "--", "true"), "--env is '1A': expected letters"),
        (("run", "--retries", "-1", "--", "true"), "--retries is -1: expected"),
        (("run", "--constraint", "??", "--", "true"), "--constraint is '??': expected"),
        (("run", "--after", "nosuch", "--", "true"), "--after is 'nosuch': expected"),
    ],
)
def test_refusal_names_the_option_that_was_typed(
    words: tuple[str, ...], said: str, typed: Typed
) -> None:
    result = typed.run(*words, role=Role.ADMIN)
    assert result.exit_code in (1, 2)
    assert result.stderr.startswith(f"muster: {said}")


def test_refusal_of_what_stands_in_a_file_names_its_key(typed: Typed) -> None:
    result = typed.run("submit", "-", stdin='{"command": "true", "name": "a b"}')
    assert result.stderr.startswith("muster: name is 'a b': expected")
    result = typed.run("submit", "--name", "a b", "-", stdin='{"command": "true"}')
    assert result.stderr.startswith("muster: --name is 'a b': expected")
