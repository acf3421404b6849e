"""Options of `submit` and `retry` that take the place of keys, arguments of files, and names."""

from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from tests.cli.fake_cluster import IDS, FakeCluster, job, session

from muster.core.errors import Conflict
from muster.core.specs import JobSpec, SessionSpec
from muster.core.states import JobState
from muster.core.views.placement import PlacementView, PlanOutcome, PlanView

FILE = """
name: train
command: [python, train.py]
env: {A: "1", B: "2"}
resources: {cpu: 2, memory: 1GiB}
workdir: /srv
"""
SESSION = "kind: session\nkernels: [{command: echo, resources: {cpu: 1}}, {command: b}]"


def submitted(*words: str, stdin: str = FILE) -> Any:
    cluster = FakeCluster(jobs_=[job()])
    result = cluster.run("submit", *words, stdin=stdin)
    assert result.exit_code == 0, result.stderr
    (spec,) = [what for action, what in cluster.asked if action == "submit"]
    return spec


def test_options_take_the_place_of_keys_and_stand_beside_variables_and_resources() -> None:
    spec = submitted(
        "-", "-n", "4", "--timeout", "1h", "--gpu", "1", "-m", "2GiB", "-e", "B=3", "-e", "C=4",
        "--keep-going", "--priority", "70", "--clean-env", "--name", "other",
    )  # fmt: skip
    assert isinstance(spec, JobSpec)
    assert (spec.tasks, spec.timeout, spec.keep_going, spec.priority) == (4, 3600.0, True, 70)
    assert (spec.name, spec.environment, spec.workdir) == ("other", "clean", "/srv")
    assert spec.env == {"A": "1", "B": "3", "C": "4"}
    assert spec.resources.resources().describe() == "2 cpu, 2GiB memory, 1 gpu"


def test_workdir_of_a_file_is_replaced_or_left_out() -> None:
    assert submitted("-", "-w", "/data").workdir == "/data"
    assert submitted("-", "--scratch").workdir is None
    assert submitted("-").workdir == "/srv"


def test_options_of_processes_go_to_each_kernel_of_a_session() -> None:
    spec = submitted("-", "-e", "A=1", "--gpu", "1", "--timeout", "5m", stdin=SESSION)
    assert isinstance(spec, SessionSpec)
    assert [kernel.env for kernel in spec.kernels] == [{"A": "1"}] * 2
    assert spec.kernels[0].resources.resources().describe() == "1 cpu, 1 gpu"
    assert spec.timeout == 300.0


def test_option_that_a_session_has_not_is_refused_by_its_name() -> None:
    result = FakeCluster().run("submit", "-", "-n", "3", stdin=SESSION)
    assert result.exit_code == 1
    assert "--tasks" in result.stderr


@pytest.mark.parametrize(
    ("command", "extended"),
    [
        ("[python, train.py]", ["python", "train.py", "--lr", "0.1 x"]),
        ('"echo $1"', ["/bin/sh", "-c", "echo $1", "sh", "--lr", "0.1 x"]),
    ],
)
def test_arguments_after_a_file_are_those_of_its_command(command: str, extended: Any) -> None:
    spec = submitted("-", "--", "--lr", "0.1 x", stdin=f"command: {command}")
    assert spec.command == extended


def test_arguments_are_for_one_command() -> None:
    one = "kind: session\nkernels: [{command: [a], replicas: 2}]"
    assert submitted("-", "x", stdin=one).kernels[0].command == ["a", "x"]
    result = FakeCluster().run("submit", "-", "x", stdin=SESSION)
    assert "arguments are for one command" in result.stderr


STARTS = PlanView(
    outcome=PlanOutcome.STARTS,
    verdict="it would start",
    group="default",
    sessions=1,
    starting=1,
    placement=PlacementView(
        group="default", position=1, queue=1, agents=1, kernels=1, kernels_fit=1
    ),
)


class Taken(FakeCluster):
    """A cluster in which names of live jobs are taken."""

    def submit(self, spec: Any) -> Any:
        if any(each.name == spec.name for each in self.jobs_ if not each.ended):
            raise Conflict(f"a job named {spec.name} is live")
        return super().submit(spec)

    def jobs(self, state: str = "live", *, name: str | None = None, **filters: Any) -> Any:
        return [each for each in super().jobs(state) if name is None or fnmatch(each.name, name)]


def test_name_of_a_file_that_is_taken_gets_the_first_free_number() -> None:
    live = [job("train", number=0), job("train-2", number=1)]
    ended = job("train-3", JobState.SUCCEEDED, number=2)
    cluster = Taken(jobs_=[*live, ended])
    assert cluster.run("submit", "-", stdin=FILE).exit_code == 0
    ((_, spec),) = cluster.asked
    assert spec.name == "train-3"


def test_number_of_a_name_follows_those_that_live_work_has() -> None:
    cluster = Taken(jobs_=[job("train", number=0), job("train-399", number=1)])
    assert cluster.run("submit", "-", stdin=FILE).exit_code == 0
    assert [spec.name for _, spec in cluster.asked] == ["train-400"]


def test_long_name_that_is_taken_has_room_for_its_number() -> None:
    for name, numbered in (("n" * 63, f"{'n' * 61}-2"), (f"{'n' * 60}.xy", f"{'n' * 60}-2")):
        cluster = Taken(jobs_=[job(name)])
        assert cluster.run("submit", "-", stdin=FILE.replace("train\n", f"{name}\n")).exit_code == 0
        ((_, spec),) = cluster.asked
        assert JobSpec.model_validate(spec.model_dump()).name == numbered


def test_plan_of_a_file_whose_name_is_taken_is_that_of_what_submit_would_hand_in() -> None:
    class Planning(Taken):
        def plan(self, spec: Any) -> Any:
            self.submit(spec)
            return STARTS

    cluster = Planning(jobs_=[job("train")])
    result = cluster.run("plan", "-", stdin=FILE)
    assert result.exit_code == 0, result.stderr
    assert [spec.name for _, spec in cluster.asked] == ["train-2"]


def test_name_that_was_typed_is_refused_if_it_is_taken() -> None:
    cluster = Taken(jobs_=[job("train")])
    result = cluster.run("submit", "-", "--name", "train", stdin=FILE)
    assert (result.exit_code, cluster.asked) == (1, [])
    assert "a job named train is live" in result.stderr


def test_refusal_for_another_reason_is_told_at_once() -> None:
    class Full(FakeCluster):
        def submit(self, spec: Any) -> Any:
            self.asked.append(("submit", spec))
            raise Conflict("the quota of ann is in use")

    cluster = Full()
    assert cluster.run("submit", "-", stdin=FILE).exit_code == 1
    assert len(cluster.asked) == 1


def test_retry_takes_changed_limits(tmp_path: Path) -> None:
    cluster = FakeCluster(jobs_=[job()])
    result = cluster.run(
        "retry", "train", "--failed", "--timeout", "2h", "-m", "8GiB", "-e", "A=1",
        "-w", str(tmp_path), "--retries", "3",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert cluster.asked == [
        (
            "retry",
            (
                "train",
                True,
                {
                    "resources": {"memory": "8GiB"},
                    "env": {"A": "1"},
                    "workdir": str(tmp_path),
                    "timeout": "2h",
                    "max_retries_failure": 3,
                },
            ),
        )
    ]


def test_cancel_of_all_that_match_leaves_others_alone() -> None:
    cluster = FakeCluster(
        jobs_=[
            job("a", JobState.PENDING, number=0),
            job("b", number=1),
            job("c", JobState.SUCCEEDED, number=2),
        ],
        sessions_=[session(status="RUNNING")],
    )
    assert cluster.run("cancel", "--state", "waiting").exit_code == 0
    assert cluster.asked == [("cancel", IDS[0])]
    cluster.asked.clear()
    assert cluster.run("cancel", "--name", "*", "--force").exit_code == 0
    assert {what for what, _ in cluster.asked} == {"cancel with force"}
    assert len(cluster.asked) == 3
    cluster.asked.clear()
    none = cluster.run("cancel", "--state", "failed")
    assert (none.exit_code, cluster.asked) == (0, [])
    assert "nothing is cancelled" in none.stderr
    for words in ((), ("a", "--state", "waiting")):
        assert cluster.run("cancel", *words).exit_code == 2
