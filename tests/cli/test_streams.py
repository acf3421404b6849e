"""Lines on stderr, with and without a terminal; and the end of a command's process."""

import io
import subprocess
import sys

import pytest
from tests.cli.test_status_line import Terminal

from muster.cli import screen
from muster.cli.streams import Line, is_drawn_on, say, state_word

SECONDS = 30


def test_line_is_written_as_it_is_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    say(
        ("muster: ", "bold red"),
        Line("train ", state_word("WORKER_FAILED")),
        "\x1b[2J " + "x" * 300,
    )
    assert (
        written.getvalue()
        == f"muster: train worker failed\N{REPLACEMENT CHARACTER}[2J {'x' * 300}\n"
    )


def test_line_is_drawn_with_its_styles_and_not_broken_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    say(("muster: ", "bold red"), state_word("SUCCEEDED"), " " + "x" * 300)
    shown = terminal.text()
    assert shown.startswith("\x1b[1;31mmuster: \x1b[0m\x1b[")
    assert "succeeded" in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("variables", "drawn"),
    [
        ({}, False),
        ({"FORCE_COLOR": ""}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"TTY_COMPATIBLE": "1"}, True),
        ({"TTY_COMPATIBLE": "0"}, False),
    ],
)
def test_environment_may_say_that_a_pipe_leads_to_a_terminal(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], drawn: bool
) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_drawn_on(io.StringIO()) is drawn
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert screen.stderr().is_terminal is drawn, "rich decides so, too"


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        (["--version"], 0, "muster ", ""),
        (["--home", "/nowhere", "--version"], 0, "muster ", ""),
        (["--help"], 0, "Usage: muster ", ""),
        (["ps", "--nope"], 2, "", "muster: No such option"),
        (["--url", "http://127.0.0.1:9", "--token", "t", "ps"], 3, "", "muster: no controller"),
    ],
)
def test_process_ends_with_all_that_was_written_and_its_code(
    words: list[str], code: int, out: str, err: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "muster.cli.main", *words],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ran.returncode == code
    for written, begins in ((ran.stdout, out), (ran.stderr, err)):
        assert written.startswith(begins)
        assert bool(written) is bool(begins)


def test_closed_streams_are_no_defect() -> None:
    command = f"{sys.executable} -m muster.cli.main --version >&- 2>&-"
    assert subprocess.run(["/bin/sh", "-c", command], timeout=SECONDS).returncode == 0
