"""Batch scripts of Slurm, handed in by ``muster sbatch`` on one machine, end as Slurm ends them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster import client_of

from muster.app.home import Home
from muster.app.local import UpOptions, up
from muster.client import Client

pytestmark = pytest.mark.thorough

TIMEOUT_S = 120.0
LINES = """#!/bin/bash
#SBATCH -J lines -a 2-6:2%1   # every second line of a file
#SBATCH -n 1 --mem=64
#SBATCH -t 5
#SBATCH -o %x_%A_%3a.out
#SBATCH -e %x_%A_%a.err
word=$(sed -n "${SLURM_ARRAY_TASK_ID}p" words.txt)
./stub "$word" "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT/$SLURM_ARRAY_TASK_MIN/\
$SLURM_ARRAY_TASK_MAX/$SLURM_ARRAY_TASK_STEP"
echo "$SLURM_ARRAY_JOB_ID" >&2
"""
TRAINING = """#!/usr/bin/env bash

#SBATCH --job-name="two words"
##SBATCH --job-name=off
#SBATCH --gres=gpu:h100:2 --cpus-per-task 3
#SBATCH --mem-per-cpu 100MB
#SBATCH --output=logs/%x-%j.log
set -eu
IFS=, read -ra gpus <<< "$CUDA_VISIBLE_DEVICES"
echo "name=$SLURM_JOB_NAME gpus=${#gpus[@]}/$SLURM_GPUS_ON_NODE cpus=$SLURM_CPUS_PER_TASK"
echo "memory=$SLURM_MEM_PER_CPU/${SLURM_MEM_PER_NODE-none} tasks=${SLURM_NTASKS-none}"
./stub trained
#SBATCH --job-name=late
"""
ENVIRONMENT = """#!/bin/bash
#SBATCH -t 1
set -e
module load compiler/9
test "$DATA_ROOT" = "some where"
test "$EXTRA" = 7
test "$LOADED" = compiler/9
test "$PWD" = "$SLURM_SUBMIT_DIR"
test "$(umask)" = 0027
test "$(basename "$0")" = slurm_script
test "$1" = --flag
test "$2" = "two words"
test -z "$(cat)"
test "$SLURM_JOB_NODELIST" = "$SLURMD_NODENAME"
test -z "${SLURM_CPUS_PER_TASK+set}${SLURM_NTASKS+set}${SLURM_ARRAY_TASK_ID+set}"
echo ok
exit 7
"""
SHELL = """
module() { shift; export LOADED=$1; }
export -f module
export DATA_ROOT="some where" SLURM_NTASKS=9 SLURM_ARRAY_TASK_ID=9
umask 027
"$MUSTER" sbatch --parsable --wait --export=ALL,EXTRA=7 environment.sh --flag "two words"
"""


class Person:
    """A person with a directory that has scripts, and a program that these call."""

    def __init__(self, home: Home, directory: Path) -> None:
        self.directory = directory
        self._muster = str(Path(sys.executable).with_name("muster"))
        kept = {name: text for name, text in os.environ.items() if name[:7] != "MUSTER_"}
        self._environment = {**kept, "MUSTER_HOME": str(home.path), "MUSTER": self._muster}
        texts = {"lines.sh": LINES, "training.sh": TRAINING, "environment.sh": ENVIRONMENT}
        texts |= {"words.txt": "a\nb\nc\nd\ne\nf\n", "stub": '#!/bin/sh\necho "stub $*"\n'}
        for name, text in texts.items():
            (directory / name).write_text(text)
        (directory / "stub").chmod(0o755)

    def runs(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a program, which ends with this code."""
        done = subprocess.run(
            words,
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done

    def sbatch(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.runs(self._muster, "sbatch", *words, code=code)

    def text(self, name: str) -> str:
        return (self.directory / name).read_text()


@pytest.fixture
def client(home: Home) -> Iterator[Client]:
    up(UpOptions(home.path, agents=1, cpus="8", memory="8GiB", gpus="4xH100"))
    with client_of(home) as client:
        yield client


def test_scripts_of_several_kinds_run_unchanged(home: Home, client: Client, tmp_path: Path) -> None:
    directory = tmp_path / "work"
    directory.mkdir()
    person = Person(home, directory)

    # An array with a step: one task at a time, and a file for each.
    said = person.sbatch("--wait", "lines.sh").stdout
    id_ = said.removeprefix("Submitted batch job ").strip()
    assert said == f"Submitted batch job {id_}\n"
    for index, word in ((2, "b"), (4, "d"), (6, "f")):
        assert person.text(f"lines_{id_}_00{index}.out") == f"stub {word} {index}/3/2/6/2\n"
        assert person.text(f"lines_{id_}_{index}.err") == f"{id_}\n"
    spec = client.job(id_).spec
    assert (spec["max_running"], spec["timeout"]) == (1, 300)

    # A training, whose directory for the output is not there at first.
    failed = person.sbatch("--parsable", "--wait", "training.sh", code=53).stdout.strip()
    assert client.job(failed).name == "two-words"
    (directory / "logs").mkdir()
    id_ = person.sbatch("--parsable", "--wait", "training.sh").stdout.strip()
    assert person.text(f"logs/two words-{id_}.log").splitlines() == [
        "name=two words gpus=2/2 cpus=3",
        "memory=100/none tasks=none",
        "stub trained",
    ]

    # The caller's shell, its functions and arguments; the exit code is the script's.
    id_ = person.runs("bash", "-c", SHELL, code=7).stdout.strip()
    assert person.text(f"slurm-{id_}.out") == "ok\n"

    # Stages, and what is refused.
    later = f"--dependency=afterany:{id_}"
    person.sbatch("--wait", later, "-o", "later-%u.out", "--wrap", 'echo "$SLURM_JOB_NAME"')
    assert [each.read_text() for each in directory.glob("later-*.out")] == ["wrap\n"]
    assert (
        "unrecognized option '--image'"
        in person.sbatch("--image=x", "training.sh", code=255).stderr
    )
