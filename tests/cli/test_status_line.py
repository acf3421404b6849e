"""The line on a terminal that says how work stands, between pieces of output."""

import io
import sys

import pytest
from rich.console import Console
from rich.text import Text
from tests.cli.fake_cluster import job
from tests.cli.test_follow import FAILED, PENDING, RUNNING, SUCCEEDED

from muster.cli.follow.conclusion import conclusion
from muster.cli.follow.progress import BAR, bar, progress
from muster.cli.follow.status_line import StatusLine
from muster.cli.streams import Line
from muster.core.states import TaskState


class Terminal(io.TextIOWrapper):
    """A terminal that both streams write to, and what it was sent."""

    def __init__(self, width: int = 60) -> None:
        self.sent = io.BytesIO()
        super().__init__(self.sent, encoding="utf-8", write_through=True)
        self.console = Console(file=self, width=width, force_terminal=True, color_system=None)

    def isatty(self) -> bool:
        return True

    def text(self) -> str:
        return self.sent.getvalue().decode()


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Called in the test, because pytest sets its own streams when that begins."""
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    return screen


ERASE = "\r\x1b[2K"


def test_status_line_makes_way_for_output(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    line = StatusLine(terminal.console)
    line.show(Text("one"))
    line.output(b"hello\n")
    line.show(Text("two"))
    line.clear()
    assert terminal.text() == f"one{ERASE}hello\ntwo{ERASE}"


def test_status_line_leaves_an_unfinished_line_of_output_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = terminal_of(monkeypatch)
    line = StatusLine(terminal.console)
    line.output(b"50%")
    line.show(Text("status"))
    line.output(b"\r99%")
    line.say(Line("done"))
    assert terminal.text() == "50%\r99%\ndone\n"


def test_status_line_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    StatusLine(terminal.console).show(Text("x" * 100))
    assert terminal.text() == "x" * 58 + "…"


def test_status_line_without_a_terminal_is_silent() -> None:
    stream = io.StringIO()
    line = StatusLine(Console(file=stream))
    line.show(Text("status"))
    line.clear()
    assert stream.getvalue() == ""


def test_bar_is_full_when_all_is_done_and_not_before() -> None:
    nearly = job(counts={TaskState.SUCCEEDED: 9_999, TaskState.RUNNING: 1})
    waiting = job(counts={TaskState.SUCCEEDED: 9_999, TaskState.PENDING: 1})
    done = job(counts={TaskState.SUCCEEDED: 10_000})
    assert bar(done).plain == "━" * BAR
    assert bar(waiting).plain == "━" * (BAR - 1) + "─"
    assert bar(nearly).plain == "━" * BAR  # all of them ended or run


def test_conclusion_of_several_tasks_says_how_those_ended_that_did_not_succeed() -> None:
    mixed = {TaskState.FAILED: 1, TaskState.KILLED: 5}
    assert conclusion(job("six", FAILED, mixed), None).text == (
        "six failed (6 of 6 tasks ended: 1 failed, 5 stopped) after 1m03s"
    )
    assert conclusion(job("two", SUCCEEDED, {TaskState.SUCCEEDED: 2}), None).text == (
        "two succeeded (2 of 2 tasks ended) after 1m03s"
    )


def test_progress_counts_what_is_done_runs_and_failed() -> None:
    counts = {
        TaskState.SUCCEEDED: 120,
        TaskState.RUNNING: 12,
        TaskState.ASSIGNED: 5,
        TaskState.FAILED: 3,
        TaskState.PENDING: 60,
    }
    line = progress(job("sweep", counts=counts), 63.4, "", 0).plain
    drawn = f"{'━' * 16}{'─' * 8}"
    assert line == f"sweep {drawn} 123/200 · 12 running · 5 assigned · 3 failed · 1m03s"
    assert progress(job("t", PENDING), 3.7, "no room", 0).plain == "⠋ t waiting · 3s · no room"
    assert progress(job("t", RUNNING), 0.4, "", 1).plain == "⠙ t running"
