"""Ctrl-C while work is followed: it cancels, detaches or goes on, as the person says."""

import errno
import io
import os
import pty
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from rich.console import Console
from tests.cli.fake_cluster import IDS, FakeCluster, session
from tests.cli.test_follow import KILLED, RUNNING, SUCCEEDED, assert_set, interrupt, life

from muster.cli.cluster import Cluster
from muster.cli.follow import follow
from muster.cli.follow import interrupt as interrupt_module
from muster.cli.follow.feed import Feed
from muster.cli.follow.interrupt import Choice, Interrupts, ask
from muster.cli.follow.status_line import StatusLine
from muster.cli.streams import Line
from muster.core.views.work import SessionDetail


def test_interrupt_without_a_terminal_cancels_and_ends_with_130() -> None:
    cluster = FakeCluster(
        jobs_=life(RUNNING), play=life(RUNNING, KILLED), hold=True, at_start=interrupt
    )
    result = cluster.run("run", "true")
    assert result.exit_code == 130
    assert ("cancel", IDS[0]) in cluster.asked
    assert "cancelling train" in result.stderr


@pytest.fixture
def unhandled() -> Iterator[None]:
    """Signals that would end the tests fail one of them instead."""

    def fail(number: int, _frame: object) -> None:
        raise AssertionError(f"nobody handles signal {number}")

    before = {each: signal.signal(each, fail) for each in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("unhandled")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_that_ends_the_process_cancels_the_job_first(number: signal.Signals) -> None:
    cluster = FakeCluster(
        jobs_=life(RUNNING),
        play=life(RUNNING, KILLED),
        hold=True,
        at_start=lambda: interrupt(number),
    )
    result = cluster.run("run", "true")
    assert result.exit_code == 128 + number
    assert ("cancel", IDS[0]) in cluster.asked
    assert f"cancelled train, because of {number.name}" in result.stderr


@pytest.mark.usefixtures("unhandled")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_that_ends_the_process_cancels_the_session_that_it_waits_for(
    number: signal.Signals,
) -> None:
    class Told(FakeCluster):
        def session(self, ref: str) -> SessionDetail:
            interrupt(number)
            return super().session(ref)

    cluster = Told(sessions_=[session(status="RUNNING")])
    stdin = "kind: session\nkernels: [{command: [date]}]"
    result = cluster.run("submit", "--wait", "-", stdin=stdin)
    assert result.exit_code == 128 + number
    assert [each for each in cluster.asked if each[0] == "cancel"] == [("cancel", session().id)]
    assert f"cancelled notebook, because of {number.name}" in result.stderr


@pytest.mark.usefixtures("unhandled")
def test_signal_that_ends_the_process_does_not_wait_for_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(console: Console, moot: Callable[[], bool]) -> Choice:
        try:
            signal.raise_signal(signal.SIGHUP)
        except KeyboardInterrupt:
            return Choice.DETACH
        return Choice.CONTINUE

    monkeypatch.setattr(follow, "ask", answer)
    cluster = FakeCluster(
        jobs_=life(RUNNING), play=life(RUNNING, KILLED), hold=True, at_start=interrupt
    )
    assert cluster.run("run", "true").exit_code == 128 + signal.SIGHUP
    assert ("cancel", IDS[0]) in cluster.asked


@pytest.mark.usefixtures("unhandled")
def test_signal_of_a_terminal_that_is_gone_cancels_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def write(self: StatusLine, line: Line) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def hang_up() -> None:
        interrupt(signal.SIGHUP)
        monkeypatch.setattr(StatusLine, "say", write)

    monkeypatch.setattr(follow, "discard_stdout", lambda: None)
    monkeypatch.setattr(interrupt_module, "discard_stdout", lambda: None)
    monkeypatch.setattr(interrupt_module, "discard_stderr", lambda: None)
    cluster = FakeCluster(
        jobs_=life(RUNNING), play=life(RUNNING, KILLED), hold=True, at_start=hang_up
    )
    assert cluster.run("run", "true").exit_code == 128 + signal.SIGHUP
    assert ("cancel", IDS[0]) in cluster.asked


def test_interrupt_that_detaches_leaves_the_job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "ask", lambda console, moot: Choice.DETACH)
    cluster = FakeCluster(play=life(RUNNING, KILLED), hold=True, at_start=interrupt)
    result = cluster.run("run", "true")
    cluster.cancelled.set()  # the thread that still waits may end
    assert result.exit_code == 2
    assert not [each for each in cluster.asked if each[0] == "cancel"]
    assert "train goes on: `muster logs -f train`" in result.stderr


def test_interrupt_that_continues_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def answer(console: Console, moot: Callable[[], bool]) -> Choice:
        asked.set()
        return Choice.CONTINUE

    monkeypatch.setattr(follow, "ask", answer)

    def interrupt_and_wait() -> None:
        interrupt()
        assert_set(asked)

    cluster = FakeCluster(
        play=life(RUNNING, SUCCEEDED), output={0: []}, at_start=interrupt_and_wait
    )
    assert cluster.run("run", "true").exit_code == 0


def test_second_interrupt_before_the_first_was_looked_at_is_raised() -> None:
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert interrupts.take()
        assert not interrupts.take()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_interrupt_of_a_process_that_was_started_to_ignore_it_is_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
            assert not interrupts.take()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("typed", "choice"),
    [
        ("c\n", Choice.CANCEL),
        ("what\nhm\nD\n", Choice.DETACH),
        ("y\n", Choice.CANCEL),
        ("no\n", Choice.CONTINUE),
        ("1\n2\n3\nc\n", Choice.DETACH),  # enough of it
        ("\n", Choice.CONTINUE),
        ("\x04", Choice.DETACH),
    ],
)
def test_question_is_asked_until_it_is_answered(
    typed: str, choice: Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, encoding="utf-8") as terminal, os.fdopen(ours, "wb", 0) as person:
        person.write(typed.encode())
        monkeypatch.setattr(sys, "stdin", terminal)
        said = io.StringIO()
        assert ask(Console(file=said, force_terminal=True, color_system=None)) is choice
        nonsense = sum(
            line.isalnum() and line not in ("c", "D", "y", "no") for line in typed.split("\n")
        )
        assert said.getvalue().count("please answer c, d or press Enter") == nonsense


def test_question_is_withdrawn_once_the_job_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, encoding="utf-8") as terminal, os.fdopen(ours, "wb", 0):
        monkeypatch.setattr(sys, "stdin", terminal)
        said = io.StringIO()
        console = Console(file=said, force_terminal=True, color_system=None)
        assert ask(console, moot=lambda: True) is Choice.CONTINUE
    assert "no answer is needed: the job has ended" in said.getvalue()


def test_feed_knows_of_the_end_before_its_reader_does() -> None:
    cluster = FakeCluster(play=life(RUNNING, SUCCEEDED))
    with Feed(Cluster(connector=cluster.connect)) as feed:
        assert not feed.job_ended()
        feed.watch_job(IDS[0])
        deadline_s = time.monotonic() + 10.0
        while not feed.job_ended():
            assert time.monotonic() < deadline_s


def test_second_interrupt_while_asked_detaches(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, encoding="utf-8") as terminal, os.fdopen(ours, "wb", 0):
        monkeypatch.setattr(sys, "stdin", terminal)
        screen = Asking()
        assert ask(screen.console) is Choice.DETACH
        assert screen.asked


class Asking(io.StringIO):
    """A terminal on which Ctrl-C is pressed as soon as the question is there."""

    asked = False

    def __init__(self) -> None:
        super().__init__()
        self.console = Console(file=self, force_terminal=True)

    def write(self, text: str) -> int:
        if "continue?" in text and not self.asked:
            self.asked = True
            signal.raise_signal(signal.SIGINT)
        return super().write(text)
