"""`muster run` and `muster submit` hand work in, and say so."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.fake_cluster import IDS, FakeCluster, because, job, refused, session

from muster.cli import hand_in
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec, SessionSpec
from muster.core.states import JobState
from muster.core.views.placement import WhyView

NO_ROOM = because(ReasonCode.NO_ROOM, agents=3, group="default", request="8 gpu")


def submitted(cluster: FakeCluster) -> Any:
    (spec,) = [what for action, what in cluster.asked if action == "submit"]
    return spec


def test_run_asks_for_what_the_options_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/bin")
    cluster = FakeCluster(jobs_=[job()])
    result = cluster.run(
        "run", "-d", "-n", "4", "--gang", "--cpu", "2", "--memory", "1GiB", "--gpu", "1",
        "-r", "licence=1", "--name", "t", "--timeout", "90s", "--retries", "2", "-e", "A=1",
        "--clean-env", "python", "train.py", "--lr", "1",
    )  # fmt: skip
    assert (result.exit_code, result.stdout) == (0, f"train ({IDS[0]})\n")
    spec = submitted(cluster)
    assert spec == {
        "kind": "job",
        "command": ["python", "train.py", "--lr", "1"],
        "name": "t",
        "tasks": 4,
        "coscheduled": True,
        "resources": {"cpu": "2", "memory": "1GiB", "gpu": "1", "extra": {"licence": "1"}},
        "timeout": "90s",
        "max_retries_failure": 2,
        "env": {"A": "1"},
        "environment": "clean",
        "workdir": str(tmp_path),
    }
    assert JobSpec.model_validate(spec).tasks == 4


def test_run_takes_what_follows_the_command_as_its_own() -> None:
    for words in (("run", "-d", "ls", "-d", "--help"), ("run", "-d", "--", "ls", "-d", "--help")):
        cluster = FakeCluster(jobs_=[job()])
        assert cluster.run(*words).exit_code == 0
        assert submitted(cluster)["command"] == ["ls", "-d", "--help"]


def test_run_in_scratch_has_no_working_directory() -> None:
    cluster = FakeCluster(jobs_=[job()])
    cluster.run("run", "-d", "--scratch", "true")
    assert "workdir" not in submitted(cluster)


def test_no_wait_ends_with_2_and_the_reasons_while_nothing_is_placed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hand_in, "PLACED_WITHIN_S", 0.1)
    why = WhyView(subject=IDS[0], status="PENDING", verdict="", reasons=(NO_ROOM,))
    cluster = FakeCluster(jobs_=[job(state=JobState.PENDING)], why_={IDS[0]: why})
    result = cluster.run("run", "--no-wait", "true")
    assert (result.exit_code, result.stdout) == (2, f"train ({IDS[0]})\n")
    assert result.stderr == (
        f"not placed yet: {NO_ROOM.sentence}. Nothing: it starts when running work ends.\n"
    )


def test_work_that_no_agent_could_hold_is_warned_of_at_once() -> None:
    never = because(ReasonCode.NO_AGENTS, group="default")
    accepted = msgspec.structs.replace(job(state=JobState.PENDING), warnings=(never,))
    cluster = FakeCluster(jobs_=[accepted])
    result = cluster.run("run", "-d", "true")
    assert (result.exit_code, result.stdout) == (0, f"train ({IDS[0]})\n")
    assert result.stderr.startswith(
        "warning: no agent could hold it now: group default has no agents. Start one"
    )
    assert cluster.run("run", "-dq", "true").stderr == ""


def test_what_is_hardly_meant_is_told_also_where_the_work_is_waited_for() -> None:
    unused = because(ReasonCode.VARIABLES_NOT_USED, names="PORT, RANK", several=True)
    never = because(ReasonCode.NO_AGENTS, group="default")
    accepted = msgspec.structs.replace(job(), warnings=(unused, never))
    told = (
        "warning: its values of PORT, RANK are not used: Muster sets them for each kernel. Leave "
        "them out of `env`; the command may set another value by itself.\n"
    )
    waited_for = FakeCluster(jobs_=[accepted]).run("run", "true").stderr
    assert told in waited_for
    assert "no agent could hold it" not in waited_for
    assert told in FakeCluster(jobs_=[accepted]).run("run", "-d", "true").stderr
    assert told in FakeCluster(jobs_=[accepted]).run("run", "--no-wait", "true").stderr
    assert told not in FakeCluster(jobs_=[accepted]).run("run", "-q", "true").stderr


def test_run_asks_for_some_of_the_tasks() -> None:
    cluster = FakeCluster(jobs_=[job()])
    cluster.run("run", "-d", "-n", "101", "--only", "0-100:25", "true")
    spec = JobSpec.model_validate(submitted(cluster))
    assert spec.only is not None
    assert str(spec.only) == "0,25,50,75,100"


def test_no_wait_ends_with_0_once_placed() -> None:
    cluster = FakeCluster(jobs_=[job(state=JobState.RUNNING)])
    result = cluster.run("run", "--no-wait", "true")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"train ({IDS[0]})\n", "")


@pytest.mark.parametrize("text", ["command: [date]\nname: d\n", '{"command": ["date"]}'])
def test_submit_reads_yaml_and_json_from_a_file_or_standard_input(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "job.yaml").write_text(text)
    for words, stdin in ((("submit", str(tmp_path / "job.yaml")), ""), (("submit", "-"), text)):
        cluster = FakeCluster(jobs_=[job()])
        result = cluster.run(*words, "--name", "other", stdin=stdin)
        assert (result.exit_code, result.stdout) == (0, f"train ({IDS[0]})\n"), result.output
        spec = submitted(cluster)
        assert isinstance(spec, JobSpec)
        assert (spec.command, spec.name) == (["date"], "other")


def test_submit_takes_a_relative_workdir_from_where_the_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "job.yaml").write_text("command: [date]\nworkdir: .")
    (tmp_path / "jobs" / "ses.yaml").write_text(
        "kind: session\nkernels: [{command: [date], workdir: ../data}]"
    )
    monkeypatch.chdir(tmp_path)
    for words, stdin, workdir in (
        (("jobs/job.yaml",), "", "jobs"),
        ((str(tmp_path / "jobs" / "job.yaml"),), "", "jobs"),
        (("-",), "command: [date]\nworkdir: out", "out"),
    ):
        cluster = FakeCluster(jobs_=[job()])
        assert cluster.run("submit", *words, stdin=stdin).exit_code == 0
        assert submitted(cluster).workdir == str(tmp_path / workdir)
    cluster = FakeCluster(jobs_=[job()])
    cluster.run("submit", "jobs/ses.yaml")
    assert submitted(cluster).kernels[0].workdir == str(tmp_path / "data")


def test_workdir_may_begin_with_a_home_and_go_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def workdir_of(*words: str, stdin: str = "") -> str:
        cluster = FakeCluster(jobs_=[job()])
        cluster.run(*words, stdin=stdin)
        workdir: str = submitted(cluster).workdir
        return workdir

    for text, workdir in (("~/x", "home/x"), ("~", "home"), (f"{tmp_path}/a/../b", "b")):
        found = workdir_of("submit", "-", stdin=f"command: x\nworkdir: {text!r}")
        assert found == str(tmp_path / workdir)
        found = workdir_of("submit", "-", "-w", text, stdin="command: x")
        assert found == str(tmp_path / workdir)
    cluster = FakeCluster(jobs_=[job()])
    cluster.run("submit", "-", stdin="command: x\nrecovery: {checkpoint_dir: ~/kept/../ckpt}")
    assert submitted(cluster).recovery.checkpoint_dir == str(tmp_path / "home/ckpt")
    unknown = FakeCluster(jobs_=[job()]).run("submit", "-", stdin="command: x\nworkdir: ~nobody-x")
    assert "workdir is '~nobody-x': expected an absolute path" in unknown.stderr


@pytest.mark.parametrize(
    ("spec", "noted"),
    [
        ("command: [python, train.py]", "train.py"),
        ("command: python sub/eval.py --fast", "sub/eval.py"),
        ("command: [python, other.py]", None),
        ("command: [python, /etc/passwd]", None),
        ("command: [python, train.py]\nworkdir: /srv", None),
        ("command: [python, train.py]\nfiles: {train.py: pass}", None),
        ('command: "echo \'unfinished train.py"', None),
    ],
)
def test_submit_notes_a_file_that_the_command_will_not_find(
    spec: str, noted: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "eval.py").touch()
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    result = FakeCluster(jobs_=[job()]).run("submit", "-", stdin=spec)
    assert result.exit_code == 0
    if noted is None:
        assert result.stderr == ""
    else:
        assert result.stderr == (
            f"note: it runs in an empty directory of its own, without {noted}; "
            f"`workdir: .` in - makes it run here\n"
        )


def test_submit_of_a_file_elsewhere_names_the_directory_to_run_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "job.yaml").write_text("command: [python, train.py]")
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    result = FakeCluster(jobs_=[job()]).run("submit", "jobs/job.yaml")
    assert f"`workdir: {tmp_path}` in jobs/job.yaml" in result.stderr


def test_id_alone_is_printed_when_quiet() -> None:
    cluster = FakeCluster(jobs_=[job()])
    assert cluster.run("run", "-d", "-q", "true").stdout == f"{IDS[0]}\n"
    assert cluster.run("submit", "-q", "-", stdin="command: [date]").stdout == f"{IDS[0]}\n"


def test_submitted_session_that_is_cancelled_ends_with_130() -> None:
    cancelled = session(reason=because(ReasonCode.CANCELLED, by="ann"))
    cluster = FakeCluster(sessions_=[cancelled])
    stdin = "kind: session\nkernels: [{command: [date]}]"
    assert cluster.run("submit", "--wait", "-", stdin=stdin).exit_code == 130


def test_submit_takes_a_session() -> None:
    cluster = FakeCluster(jobs_=[job()])
    cluster.run("submit", "-", stdin="kind: session\nkernels: [{command: [date]}]")
    assert isinstance(submitted(cluster), SessionSpec)


@pytest.mark.parametrize(
    ("stdin", "said"),
    [
        ("comand: [date]", "did you mean command"),
        ("command: [", "line 1"),
        (b"\xff\xfe", "UTF-8"),
        ("command: [date]\ntasks: 0", "tasks is 0"),
    ],
)
def test_submit_of_a_wrong_file_hands_in_nothing(stdin: str | bytes, said: str) -> None:
    cluster = FakeCluster(jobs_=[job()])
    result = cluster.run("submit", "-", stdin=stdin)
    assert result.exit_code in (1, 2)
    assert said in result.stderr
    assert cluster.asked == []


TAKES = {
    "group": ("groups", "apply"),
    "quota": ("quota", "set"),
    "pool": ("pools", "apply"),
    "job": ("submit",),
    "session": ("submit",),
}


@pytest.mark.parametrize("words", [("plan",), *dict.fromkeys(TAKES.values())])
def test_file_of_another_kind_is_refused_with_the_command_that_takes_it(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    file = tmp_path / "a spec.yaml"
    cluster = FakeCluster()
    for kind, takes in TAKES.items():
        if words == takes or (words == ("plan",) and takes == ("submit",)):
            continue
        file.write_text(f"kind: {kind}\nwrong: besides")
        result = cluster.run(*words, str(file))
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith(f"muster: {file}: kind is {kind}: this command takes a")
        assert result.stderr.endswith(f": use `muster {' '.join(takes)} '{file}'`\n")
    assert cluster.asked == []


def test_plan_says_that_it_makes_none_of_a_deployment_and_what_tells_instead() -> None:
    stdin = "kind: deployment\nname: web\ncommand: [serve]"
    cluster = FakeCluster()
    result = cluster.run("plan", "-", stdin=stdin)
    assert (result.exit_code, cluster.asked) == (1, [])
    assert result.stderr == (
        "muster: kind is deployment: this command takes a job or a session: "
        "no plan is made of a deployment; hand it in by `muster deploy --detach -`, and `muster "
        "why NAME` tells what its replicas lack\n"
    )


@pytest.mark.parametrize("kind", ["group", "quota", "pool"])
def test_file_without_a_kind_is_told_which_it_needs(kind: str) -> None:
    result = FakeCluster().run(*TAKES[kind], "-", stdin="command: [date]")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"muster: kind: missing: write `kind: {kind}` into it, or hand a job in with "
        f"`muster submit -`\n"
    )


@pytest.mark.parametrize("words", [("submit",), ("pools", "apply")])
def test_kind_that_is_meant_is_told_by_the_keys(words: tuple[str, ...]) -> None:
    text = "name: here\nprovider: local\nmachine: {cpu: 1}\nmax_slices: 3"
    result = FakeCluster().run(*words, "-", stdin=text)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "muster: kind: missing: a pool has these keys, so write `kind: pool` into it and use "
        "`muster pools apply -`\n"
    )


@pytest.mark.parametrize(
    ("words", "kind"), [(("plan",), "job"), *((words, kind) for kind, words in TAKES.items())]
)
def test_wrong_file_is_named(tmp_path: Path, words: tuple[str, ...], kind: str) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(f"kind: {kind}\nkidn: job\nkint: job")
    cluster = FakeCluster()
    result = cluster.run(*words, str(file))
    assert (result.exit_code, cluster.asked) == (1, [])
    wrong = [line for line in result.stderr.splitlines() if "did you mean" in line]
    assert [line.split(": ")[0] for line in wrong] == [f"  {file}"] * 2


def test_file_is_named_with_what_the_controller_refuses_of_it(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("command: [date]")
    problems = [("group", "'nowhere'", "groups are: default"), ("name", "taken", "another")]
    cluster = FakeCluster(fails=refused(*problems))
    result = cluster.run("submit", str(file), "--name", "taken")
    assert result.exit_code == 1
    assert f"{file}: group is 'nowhere': groups are: default" in result.stderr
    assert f"{file}: name" not in result.stderr, "that was typed as an option"
    assert "--name is taken: another" in result.stderr
    result = cluster.run("submit", "-", stdin="command: [date]")
    assert "  group is 'nowhere': groups are: default" in result.stderr


def test_submit_of_a_missing_file_says_so() -> None:
    result = FakeCluster().run("submit", "/nowhere/job.yaml")
    assert result.exit_code == 1
    assert result.stderr == "muster: cannot read /nowhere/job.yaml: No such file or directory\n"
