"""Names after programs."""

import pytest

from muster.control.naming import program_name


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "train.py", "--epochs", "10"], "train"),
        (["/usr/bin/python3.11", "-u", "/data/eval.py"], "eval"),
        (["python", "-m", "lab.sweep"], "sweep"),
        (["python", "-c", "print(1)"], "python"),
        (["./run-all.sh", "x"], "run-all"),
        (["/bin/sh", "-c", "cd x && python train.py"], "train"),
        (["sh", "-c", "echo hello"], "echo"),
        (["bash", "-lc", "source env.sh; export A=1\nB=2 exec ./solve | tee log"], "solve"),
        (["sh", "-c", "cd /tmp"], "cd"),
        (["sh", "-c", "python 'unfinished"], "python"),
        (["sh", "-c", "(nohup make all) > log 2>&1"], "make"),
        (["env", "A=1", "sleep", "10"], "sleep"),
        (["sh", "build.sh"], "build"),
        (["sh", "-c", "  "], "sh"),
        (["ses-01"], "job"),
        (["./ses"], "job"),  # its first job would be ses-1
        (["∀"], "job"),
        (["x" * 100], "x" * 40),
    ],
)
def test_job_is_called_after_its_program(command: list[str], name: str) -> None:
    assert program_name(command) == name
