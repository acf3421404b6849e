"""A batch script of Slurm as the keys of a job, and as the shell that runs it."""

import shlex
import subprocess
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from muster.cli.sbatch.header import SbatchError
from muster.cli.sbatch.options import TABLE, VARIABLES, Effect, parsed
from muster.cli.sbatch.prologue import PROLOGUE, SCRIPT, file_word
from muster.cli.sbatch.translation import (
    BatchScript,
    Setting,
    Translated,
    environment,
    hosts,
    translated,
)
from muster.core.specs import JobSpec
from muster.core.specs.load import parse_spec

NOW = datetime(2026, 11, 29, 12, 30, tzinfo=timezone(timedelta(hours=1)))
PAGE = Path(__file__).parents[2] / "docs" / "from-slurm.md"


def of_options(line: str, body: str = "true\n", directory: str = "/data/ann") -> Translated:
    """The job of a script that has these options in its header."""
    setting = Setting(
        directory,
        host="login",
        environment={},
        umask=0o22,
        now=NOW,
        groups=("default", "gpu"),
        projects=("vision",),
        namesakes=lambda name: [f"job-of-{name}"],
    )
    batch = BatchScript("train.sh", f"#!/bin/bash\n#SBATCH {line}\n{body}", ("a b",), {})
    return translated(batch, setting)


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        ("", {"name": "train.sh", "resources": {"cpu": 1}, "grace": 30}),
        ("-J 'second one'", {"name": "second-one"}),
        ("-J ..", {"name": "sbatch"}),
        ("-t 1:30", {"timeout": 120}),
        ("-a 1-7:3%2", {"tasks": 8, "only": "1,4,7", "max_running": 2, "keep_going": True}),
        ("-n 4 -c 2", {"resources": {"cpu": 8}}),
        ("-N 1-1 --ntasks-per-node=3", {"resources": {"cpu": 3}}),
        ("-N 1-4", {"resources": {"cpu": 1}}),
        ("--mincpus=6", {"resources": {"cpu": 6}}),
        ("--mem=4G", {"resources": {"cpu": 1, "memory": str(4 << 30)}}),
        ("-n 2 -c 3 --mem-per-cpu=1G", {"resources": {"cpu": 6, "memory": str(6 << 30)}}),
        ("--mem=1G --mem-per-cpu=2G", {"resources": {"cpu": 1, "memory": str(2 << 30)}}),
        (
            "--gpus=2 --mem-per-gpu=8G --cpus-per-gpu=4",
            {"resources": {"cpu": 8, "memory": str(16 << 30), "gpu": 2}},
        ),
        ("--gres=gpu:a100:2", {"resources": {"cpu": 1, "gpu": 2, "gpu_model": ["a100"]}}),
        ("--gpus-per-node=h100:8", {"resources": {"cpu": 1, "gpu": 8, "gpu_model": ["h100"]}}),
        ("-n 2 --gpus-per-task=1", {"resources": {"cpu": 2, "gpu": 2}}),
        ("-p fast,gpu", {"group": "gpu"}),
        ("-A vision", {"project": "vision"}),
        ("-w nd[3]", {"placement": {"agents": ["nd3"]}}),
        (
            "-x nd[1-2] -C 'a100&ib'",
            {"placement": {"constraints": ["hostname!=nd1", "hostname!=nd2", "a100", "ib"]}},
        ),
        ("--no-requeue", {"max_retries_preemption": 0}),
        ("-b now+1hour", {"not_before": NOW.timestamp() + 3600}),
        (
            "-d afterok:job-1:job-2,afterany:job-3,after:job-4",
            {"after": ["job-1:succeeded", "job-2:succeeded", "job-3:ended", "job-4:running"]},
        ),
        ("-d afternotok:job-1 -H", {"after": ["job-1:failed"], "hold": True}),
        ("-J nightly -d singleton", {"after": ["job-of-nightly:ended"]}),
    ],
)
def test_keys_of_a_job(line: str, keys: dict[str, Any]) -> None:
    found = of_options(line)
    assert {name: found.keys[name] for name in keys} == keys
    assert found.told == []
    parse_spec(JobSpec, found.keys)


@pytest.mark.parametrize("line", ["-b now", "-t UNLIMITED", "--no-requeue --requeue", "--time=0"])
def test_option_that_asks_for_what_is_the_rule_adds_no_key(line: str) -> None:
    plain, found = of_options("").keys, of_options(line).keys
    assert set(found) == set(plain)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-p fast", "there is no such scaling group (there are default, gpu)"),
        ("-A physics", "it is no project of yours"),
        ("--gres=gpu:1,nvme:10", "--gres=nvme:10 has no effect"),
        ("--mem=0", "sets no limit"),
        ("--mem-per-gpu=16G", "no GPUs are asked for"),
        ("--exclusive", "others may run on the machine"),
        ("--signal=B:USR1@50", "SIGTERM comes at the time limit"),
        ("--mail-type=ALL", "no mail is sent"),
    ],
)
def test_option_that_is_lost_is_told(line: str, said: str) -> None:
    (told,) = of_options(line).told
    assert said in told


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-N 2", "gets one machine so far"),
        ("-N 2-4", "gets one machine so far"),
        ("-w nd[1-2]", "name one"),
        ("-d aftercorr:job-1", "aftercorr cannot be done yet"),
        ("-d afterok:job-1_3", "give the id of a whole job"),
        ("-d after:job-1+5", "no delay"),
        ("-d 'afterok:job-1?afterok:job-2'", "alternatives"),
        ("-d afterok", "problem with 'afterok'"),
        ("-C 'a|b'", "--constraint=a|b cannot be done"),
        ("-V", "--version cannot be done"),
        ("--gpus=a100:2,v100:1", "GPUs of one model"),
        ("--gres=gpu:a100:2,gpu:v100:1", "GPUs of one model"),
        ("--gpus=a100:1 --gres=gpu:v100:2", "GPUs of a100 and v100 cannot be given together"),
        ("--begin=now+99999999999999days", "invalid --begin"),
        ("hetjob", "invalid argument in a #SBATCH line: 'hetjob'"),
        ("--open-mode=both", "invalid --open-mode"),
        ("-n 0", "invalid numeric value '0' for --ntasks"),
    ],
)
def test_what_cannot_be_done_is_refused(line: str, said: str) -> None:
    with pytest.raises(SbatchError) as refused:
        of_options(line)
    assert said in str(refused.value)


def test_command_line_wins_over_variables_and_these_over_the_script() -> None:
    text = "#!/bin/sh\n#SBATCH -t 1 -p gpu -J script\n"
    variables = {"SBATCH_TIMELIMIT": "2", "SBATCH_PARTITION": "default"}
    setting = Setting("/d", "login", variables, 0o22, NOW, ("default", "gpu"))
    typed, _ = parsed(["-t", "3"])
    keys = translated(BatchScript("x", text, (), typed), setting).keys
    assert (keys["timeout"], keys["group"], keys["name"]) == (180, "default", "script")


def test_commands_of_slurm_in_a_script_are_told() -> None:
    body = "# squeue is not called\nx=$(scontrol show hostnames)\nsrun hostname\nmysrun\n"
    (told,) = of_options("", body).told
    assert "seems to call scontrol, srun:" in told


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("a1", ["a1"]),
        ("a1,b[1-3,7]", ["a1", "b1", "b2", "b3", "b7"]),
        ("c[01-02]x", ["c01x", "c02x"]),
    ],
)
def test_lists_of_hosts(text: str, names: list[str]) -> None:
    assert hosts(text) == names


@pytest.mark.parametrize("text", ["a[1-", "a[x]", "a[]", "a[1-99999]", "r[1-2]n[1-4]", "a]"])
def test_wrong_lists_of_hosts(text: str) -> None:
    with pytest.raises(SbatchError):
        hosts(text)


def test_environment_of_the_caller() -> None:
    caller = {"A": "1", "B": "2", "PWD": "/x", "MUSTER_TOKEN": "t", "SLURM_NTASKS": "3"}
    caller |= {"BASH_FUNC_f%%": "() { :; }"}
    function = {"BASH_FUNC_f%%": "() { :; }"}
    assert environment(None, caller) == ({"A": "1", "B": "2"}, function)
    assert environment("ALL,C=x y", caller) == ({"A": "1", "B": "2", "C": "x y"}, function)
    assert environment("A,C='x,y',D=", caller) == ({"A": "1", "C": "x,y", "D": ""}, {})
    assert environment("NONE", caller) == ({}, {})


KNOWN = {
    "SLURM_JOB_ID": "J_7",
    "SLURM_ARRAY_JOB_ID": "J",
    "SLURM_ARRAY_TASK_ID": "7",
    "SLURM_JOB_NAME": "two words",
    "SLURM_JOB_USER": "ann",
    "SLURMD_NODENAME": "nd1",
}


@pytest.mark.parametrize(
    ("pattern", "is_array", "path"),
    [
        ("slurm-%A_%a.out", True, "/d/slurm-J_7.out"),
        ("%3a/%j/%J", True, "/d/007/J_7/J_7"),
        ("%x %u %N %t %n %%j", True, "/d/two words ann nd1 0 0 %j"),
        ("%A_%a", False, "/d/J_7_4294967294"),
        ("/abs/$HOME/~'%y", False, "/abs/$HOME/~'%y"),
        ("\\%j", False, "/d/%j"),
    ],
)
def test_patterns_of_files(pattern: str, is_array: bool, path: str) -> None:
    line = f"printf %s {file_word(pattern, '/d', is_array)}"
    ran = subprocess.run(["/bin/sh", "-c", line], env=KNOWN, capture_output=True, text=True)
    assert ran.stdout == path


def ran(directory: Path, line: str, body: str, **variables: str) -> tuple[int, dict[str, str]]:
    """The exit code of a script that was run as a kernel would run it, and the variables that it
    had."""
    found = of_options(line, body, directory=str(directory))
    scratch = directory / "scratch"
    scratch.mkdir()
    for name, text in found.keys["files"].items():
        (scratch / name).write_text(text)
        (scratch / name).chmod(0o755)
    own = {"MUSTER_JOB_ID": "job-1", "MUSTER_TASK_INDEX": "0", "MUSTER_ATTEMPT": "1"}
    own |= {"PATH": "/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": "1,3"} | variables
    assert found.keys["command"][:2] == ["/bin/sh", PROLOGUE]
    code = subprocess.run(found.keys["command"], cwd=scratch, env=own, check=False).returncode
    lines = (directory / "env").read_text().split("\0") if (directory / "env").exists() else []
    return code, dict(each.split("=", 1) for each in lines if each)


ALWAYS = {
    "SLURM_JOB_ID": "job-1",
    "SLURM_JOBID": "job-1",
    "SLURM_JOB_NAME": "train.sh",
    "SLURM_JOB_PARTITION": "default",
    "SLURM_NNODES": "1",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_TASKS_PER_NODE": "1",
    "SLURM_JOB_CPUS_PER_NODE": "1",
    "SLURM_CPUS_ON_NODE": "1",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "TMPDIR": "/tmp",
}


@pytest.mark.parametrize(
    ("line", "variables", "unset"),
    [
        ("", ALWAYS, "NTASKS NPROCS CPUS_PER_TASK NTASKS_PER_NODE MEM_PER_NODE MEM_PER_CPU"),
        ("", {}, "ARRAY_TASK_ID ARRAY_JOB_ID JOB_GPUS GPUS_ON_NODE GPUS RESTART_COUNT EXPORT_ENV"),
        ("-n 4 -c 2", {"SLURM_NTASKS": "4", "SLURM_NPROCS": "4", "SLURM_CPUS_PER_TASK": "2"}, ""),
        ("--ntasks-per-node=2", {"SLURM_NTASKS_PER_NODE": "2", "SLURM_NTASKS": "2"}, ""),
        ("--mem=1gb", {"SLURM_MEM_PER_NODE": "1024"}, "MEM_PER_CPU"),
        ("-c 3 --mem-per-cpu=100", {"SLURM_MEM_PER_CPU": "100"}, "MEM_PER_NODE NTASKS"),
        ("--gpus=2", {"SLURM_GPUS": "2", "SLURM_JOB_GPUS": "1,3", "SLURM_GPUS_ON_NODE": "2"}, ""),
        ("--gres=gpu:2", {"SLURM_GPUS_ON_NODE": "2"}, "GPUS GPUS_PER_NODE"),
    ],
)
def test_variables_that_scripts_read(
    line: str, variables: dict[str, str], unset: str, tmp_path: Path
) -> None:
    code, found = ran(tmp_path, line, "env -0 > env\n")
    assert code == 0
    assert {name: found.get(name) for name in variables} == variables
    assert {name for name in unset.split() if f"SLURM_{name}" in found} == set()
    assert found["SLURM_SUBMIT_DIR"] == found["PWD"] == str(tmp_path)
    assert found["SLURM_JOB_NODELIST"] == found["SLURM_NODELIST"] == found["SLURMD_NODENAME"]


def test_variables_of_an_array_and_of_a_later_attempt(tmp_path: Path) -> None:
    script = "env -0 > env\n"
    _, found = ran(tmp_path, "-a 1-9:4", script, MUSTER_TASK_INDEX="5", MUSTER_ATTEMPT="3")
    of_array = {name[12:]: text for name, text in found.items() if name.startswith("SLURM_ARRAY_")}
    of_tasks = {"COUNT": "3", "MIN": "1", "MAX": "9", "STEP": "4", "ID": "5"}
    assert of_array == {"JOB_ID": "job-1", **{f"TASK_{k}": v for k, v in of_tasks.items()}}
    assert found["SLURM_JOB_ID"] == "job-1_5"
    assert found["SLURM_RESTART_COUNT"] == "2"
    assert (tmp_path / "slurm-job-1_5.out").read_text() == ""


def test_files_of_the_output_and_the_arguments(tmp_path: Path) -> None:
    (tmp_path / "o").write_text("before\n")
    (tmp_path / "i").write_text("asked\n")
    body = 'echo "$1"; cat; basename "$0"; echo bad >&2; exit 3\n'
    code, _ = ran(tmp_path, "-o o -e e%% -i i --open-mode=append", body)
    assert code == 3
    assert (tmp_path / "o").read_text() == f"before\na b\nasked\n{SCRIPT}\n"
    assert (tmp_path / "e%").read_text() == "bad\n"


@pytest.mark.parametrize("line", ["-o no/such/%j", "-e no/such", "-i nothing", "-D no/such"])
def test_file_that_cannot_be_opened_ends_the_job_as_in_slurm(line: str, tmp_path: Path) -> None:
    assert ran(tmp_path, line, "env -0 > env\n") == (53, {})


def test_page_names_every_option_and_variable() -> None:
    words = set(shlex.split(PAGE.read_text().replace("`", " ").replace("'", ""), comments=False))
    named = {word.strip(",;:.()") for word in words}
    missing = [row.name for row in TABLE if f"--{row.name}" not in named]
    lost = [row.name for row in TABLE if row.effect is Effect.LOST]
    assert len(lost) > 30
    assert missing == []
    assert set(VARIABLES) - named == set()
