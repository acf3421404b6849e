"""The end of a command whose output nobody reads, or for whose output there is no room."""

import os
import subprocess
import sys
from collections.abc import Mapping

import click
import pytest

from muster.cli import failures
from muster.cli.exits import ExitCode

SECONDS = 60.0
FULL = "cannot do that: No space left on device"
COMMANDS = [["--version"], ["--help"], ["completion", "bash"]]
BUFFERED: list[Mapping[str, str]] = [{"PYTHONUNBUFFERED": ""}, {"PYTHONUNBUFFERED": "1"}]


def run(arguments: list[str], into: str, environment: Mapping[str, str]) -> tuple[int, str]:
    """The exit code and stderr of a command whose stdout is redirected as the shell is told."""
    script = f'"$0" -m muster.cli.main "$@" {into}'
    done = subprocess.run(
        ["/bin/bash", "-c", script, sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("environment", BUFFERED)
@pytest.mark.parametrize("arguments", COMMANDS)
def test_output_that_nobody_reads_is_no_trouble(
    arguments: list[str], environment: Mapping[str, str]
) -> None:
    code, said = run(arguments, "> >(exec true); wait $!", environment)
    assert (code, said) == (0, ""), "that of the reader"
    code, said = run(arguments, "| true; exit ${PIPESTATUS[0]}", environment)
    assert (code in (0, 1), said) == (True, "")


@pytest.mark.parametrize("environment", BUFFERED)
@pytest.mark.parametrize("arguments", COMMANDS)
def test_output_for_which_there_is_no_room_is_told_in_a_sentence(
    arguments: list[str], environment: Mapping[str, str]
) -> None:
    assert run(arguments, "> /dev/full", environment) == (1, f"muster: {FULL}\n")


@pytest.mark.parametrize("arguments", COMMANDS)
def test_closed_output_is_no_defect(arguments: list[str]) -> None:
    assert run(arguments, ">&-", {}) == (0, "")


def test_command_that_is_interrupted_ends_without_a_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = click.Abort()
    error.__cause__ = KeyboardInterrupt()
    assert failures.report(error) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == ""
    assert failures.report(click.Abort()) == ExitCode.FAILED
    assert "nothing was done" in capsys.readouterr().err
