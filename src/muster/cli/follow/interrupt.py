"""Signals while work is followed or waited for: Ctrl-C, and those that end the process."""

import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from muster.cli.cluster import Cluster
from muster.cli.streams import Line, discard_stderr, discard_stdout, plain
from muster.core.errors import MusterError

if TYPE_CHECKING:
    from rich.console import Console

CANCEL_TIMEOUT_S = 5.0
"""How long a cancellation may take once a signal ends this process: it is killed soon if it stays.
"""
_ENDING = (signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Signals as flags that are checked between two steps, instead of exceptions in the middle of a
    step.

    A second Ctrl-C before anybody looked is a KeyboardInterrupt. A process that was started to
    ignore a signal (in the background of a script, by nohup) goes on ignoring it.

    ``told_to_end`` is the signal by which somebody else ends the process: a time limit, or a
    terminal that is gone.
    """

    def __init__(self) -> None:
        self._pressed = False
        self._is_raised = False
        self.told_to_end: signal.Signals | None = None

    def __enter__(self) -> "Interrupts":
        numbers = (signal.SIGINT, *_ENDING)
        self._before = {number: signal.getsignal(number) for number in numbers}
        for number, before in self._before.items():
            if before is not signal.SIG_IGN:
                signal.signal(number, self._end if number in _ENDING else self._press)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def take(self) -> bool:
        """Whether Ctrl-C was pressed since the last look."""
        pressed, self._pressed = self._pressed, False
        return pressed

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Make the signals the exception that people expect, while nobody looks at the flags."""
        before = signal.getsignal(signal.SIGINT)
        if before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._is_raised = True
        try:
            yield
        finally:
            self._is_raised = False
            signal.signal(signal.SIGINT, before)

    def _press(self, _number: int, _frame: FrameType | None) -> None:
        if self._pressed:
            raise KeyboardInterrupt
        self._pressed = True

    def _end(self, number: int, _frame: FrameType | None) -> None:
        self.told_to_end = signal.Signals(number)
        if self._is_raised:
            raise KeyboardInterrupt


def told_to_end(
    by: signal.Signals,
    cluster: Cluster,
    id_: str,
    name: str,
    say: Callable[[Line], None],
) -> int:
    """Cancel the work that is waited for, as nobody is there to be asked, and do not wait for its
    end: whoever sent the signal waits for this process. The answer is its exit code."""
    said = f"cancelled {name}, because of {by.name}"
    try:
        with cluster.client(CANCEL_TIMEOUT_S) as client:
            client.cancel(id_)
    except MusterError as error:
        said = f"{name} goes on despite {by.name}: {plain(str(error))}"
    try:
        say(Line(said))
    except OSError:  # the terminal is gone, and what is left in the buffers with it
        discard_stdout()
        discard_stderr()
    return 128 + by


class Choice(StrEnum):
    CANCEL = "cancel"
    DETACH = "detach"
    CONTINUE = "continue"


_QUESTION = "Interrupted: [c]ancel the job, [d]etach and let it run, or [Enter] to continue? "
_TRIES = 3
_LOOK_S = 0.2
_ANSWERS = {
    "c": Choice.CANCEL,
    "cancel": Choice.CANCEL,
    "y": Choice.CANCEL,  # the first choice that is offered
    "yes": Choice.CANCEL,
    "d": Choice.DETACH,
    "detach": Choice.DETACH,
    "": Choice.CONTINUE,
    "continue": Choice.CONTINUE,
    "n": Choice.CONTINUE,
    "no": Choice.CONTINUE,
}


def ask(console: "Console", moot: Callable[[], bool] = lambda: False) -> Choice:
    """The answer to the question what to do with the job; without a person to ask, to cancel it.

    A second Ctrl-C, the end of input, or three answers that are none detach, which destroys
    nothing. Once the question is ``moot``, because the job has ended, nobody need answer.
    """
    if not (sys.stdin.isatty() and console.is_terminal):
        return Choice.CANCEL
    console.print()  # the terminal's echo of Ctrl-C keeps its line
    for _ in range(_TRIES):
        try:
            console.print(_QUESTION, end="", markup=False)
            answer = _read_line(moot)
        except (KeyboardInterrupt, EOFError):
            console.print()
            return Choice.DETACH
        if answer is None:
            console.print("\nno answer is needed: the job has ended")
            return Choice.CONTINUE
        if (choice := _ANSWERS.get(answer.strip().lower())) is not None:
            return choice
        console.print("please answer c, d or press Enter")
    return Choice.DETACH


def _read_line(moot: Callable[[], bool]) -> str | None:
    """The next typed line; None once the question is ``moot``. ``input`` would sleep on if Ctrl-C
    came just before it reads.

    Raises:
        EOFError: the input has ended.
    """
    while not select.select([sys.stdin], [], [], _LOOK_S)[0]:
        if moot():
            return None
    if not (line := sys.stdin.readline()):
        raise EOFError
    return line
