"""``muster sbatch``: its streams, its exit codes, and what it asks the cluster."""

from pathlib import Path

import pytest
from tests.cli.fake_cluster import IDS, FakeCluster, job, refused

from muster.core.specs import JobSpec
from muster.core.views.cluster import GroupView

SCRIPT = "#!/bin/sh\n#SBATCH --exclusive -p default\ntrue\n"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    (tmp_path / "train.sh").write_text(SCRIPT)
    return "train.sh"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(jobs_=[job("train")], groups_=[GroupView(name="default", spec={})])


def handed_in(cluster: FakeCluster) -> JobSpec:
    (spec,) = [said[1] for said in cluster.asked if said[0] == "submit"]
    assert isinstance(spec, JobSpec)
    return spec


@pytest.mark.parametrize(
    ("words", "stdout"),
    [
        ([], f"Submitted batch job {IDS[0]}\n"),
        (["--parsable"], f"{IDS[0]}\n"),
        (["--parsable", "-Q"], f"{IDS[0]}\n"),
        (["-Q"], ""),
    ],
)
def test_answers_as_sbatch_does_and_tells_on_stderr(
    words: list[str], stdout: str, script: str, cluster: FakeCluster
) -> None:
    result = cluster.run("sbatch", *words, script, "--arg", "-n", "-h")
    assert (result.exit_code, result.stdout) == (0, stdout)
    assert result.stderr == (
        "sbatch: note: --exclusive has no effect: others may run on the machine beside it\n"
    )
    spec = handed_in(cluster)
    assert spec.name == "train.sh"
    assert spec.command[2:] == ["--arg", "-n", "-h"]
    assert spec.files["slurm_script"] == SCRIPT
    assert spec.environment == "clean"
    assert f"export SLURM_SUBMIT_DIR={Path.cwd()}\n" in spec.files["slurm_prologue"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--image=x", "train.sh"], "unrecognized option '--image'"),
        (["no-such.sh"], "unable to open file no-such.sh: No such file or directory"),
        (["--wrap=date", "train.sh"], "not permitted with --wrap"),
        (["-N2", "train.sh"], "--nodes: a batch script gets one machine so far"),
        (["-h"], "see `muster sbatch --help`"),
    ],
)
def test_wrong_use_ends_with_255_and_hands_nothing_in(
    words: list[str], said: str, script: str, cluster: FakeCluster
) -> None:
    result = cluster.run("sbatch", *words)
    assert (result.exit_code, result.stdout) == (255, "")
    assert result.stderr.startswith("sbatch: error: ")
    assert said in result.stderr
    assert [said for said in cluster.asked if said[0] == "submit"] == []


def test_refusal_of_the_controller_ends_with_1(script: str) -> None:
    result = FakeCluster(fails=refused(("tasks", "0", "expected more"))).run("sbatch", script)
    assert (result.exit_code, result.stdout) == (1, "")


def test_letters_of_options_are_not_taken_for_help(script: str, cluster: FakeCluster) -> None:
    result = cluster.run("sbatch", "-phigh", script)
    assert result.exit_code == 0
    assert "--partition=high has no effect" in result.stderr


def test_line_of_the_command_line_is_a_script(cluster: FakeCluster) -> None:
    assert cluster.run("sbatch", "-n2", "--wrap", "echo 'a b'").exit_code == 0
    spec = handed_in(cluster)
    assert spec.name == "wrap"
    assert spec.files["slurm_script"].endswith("\n\necho 'a b'\n")
    assert spec.resources.cpu == 2000


def test_script_is_read_from_standard_input(cluster: FakeCluster) -> None:
    assert cluster.run("sbatch", "-p", "default", stdin=SCRIPT).exit_code == 0
    assert handed_in(cluster).files["slurm_script"] == SCRIPT
    wrong = cluster.run("sbatch", stdin=b"#!/bin/sh\n\xff\n")
    assert (wrong.exit_code, wrong.stderr) == (255, "sbatch: error: sbatch is no text in UTF-8\n")


def test_singleton_waits_for_own_jobs_of_the_name(script: str) -> None:
    jobs = [job(name, number=at) for at, name in enumerate(("train", "train-2", "train-two"))]
    cluster = FakeCluster(jobs_=jobs, groups_=[GroupView(name="default", spec={})])
    cluster.run("sbatch", "-J", "train", "-d", "singleton", script)
    after = handed_in(cluster).after
    assert [(each.on, each.condition) for each in after] == [(IDS[0], "ended"), (IDS[1], "ended")]
