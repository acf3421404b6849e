"""The first line of a command that is written as text."""

import subprocess
import sys

import pytest

from muster.core.errors import InvalidSpec
from muster.core.specs import JobSpec
from muster.core.specs.first_line import interpreter_in
from muster.core.specs.load import load_spec


def command(text: str) -> list[str]:
    return JobSpec(command=text).command


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", ["/bin/sh", "-c"]),
        ("#!/bin/bash\n", ["/bin/bash", "-c"]),
        ("#! /bin/bash -e\n", ["/bin/bash", "-e", "-c"]),
        ("#!/usr/bin/env bash\n", ["/usr/bin/env", "bash", "-c"]),
        ("#!/usr/bin/env -S python3 -u\n", ["/usr/bin/env", "-S python3 -u", "-c"]),
        ("#!/opt/bin/python3.12\n", ["/opt/bin/python3.12", "-c"]),
        ("#!/usr/bin/perl\n", ["/usr/bin/perl", "-e"]),
    ],
)
def test_text_is_for_the_interpreter_that_its_first_line_names(line: str, words: list[str]) -> None:
    text = f"{line}echo hello\n"
    assert command(text) == [*words, text]
    assert interpreter_in(command(text)) == " ".join(words[:-1])


@pytest.mark.parametrize("shell", ["/bin/bash", "/usr/bin/env bash", "/usr/bin/env -S bash -e"])
def test_shell_runs_a_line_that_is_its_own_alone(shell: str) -> None:
    text = f'#!{shell}\nwords=(a b); echo "${{words[1]}}"\n'
    ran = subprocess.run(command(text), capture_output=True, text=True, check=True)
    assert ran.stdout == "b\n"


def test_python_runs_its_own_text() -> None:
    text = f"#!{sys.executable}\nprint(1 + 1)\n"
    ran = subprocess.run(command(text), capture_output=True, text=True, check=True)
    assert ran.stdout == "2\n"


def test_list_stays_as_it_is() -> None:
    assert JobSpec(command=["bash", "-c", "true"]).command == ["bash", "-c", "true"]
    assert interpreter_in(["bash", "-c", "true"]) is None
    assert interpreter_in(["python", "train.py"]) is None


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ('{command: "#!/bin/sh\\r\\ntrue\\r\\n"}', r"names '/bin/sh\\r': its lines end as on Win"),
        ('{command: "#!/usr/bin/awk -f\\n"}', "names '/usr/bin/awk', which takes no program as an"),
        ('{command: "#!\\ntrue"}', "its first line names no interpreter"),
        ('{command: [./a], files: {a: "#!/bin/sh\\r\\n"}}', "its lines end as on Windows"),
    ],
)
def test_first_line_that_nobody_could_honour_is_refused(spec: str, problem: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        load_spec(spec)
    assert problem.replace("\\\\", "\\") in str(refused.value)
