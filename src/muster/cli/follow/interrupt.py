"""What Ctrl-C means while a job is followed."""

import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from types import FrameType, TracebackType

from rich.console import Console


class Interrupts:
    """Ctrl-C as something to look at between two steps, not an exception in the middle of one.

    Pressed again before anybody looked, it is a KeyboardInterrupt after all. A process that was
    started to ignore it (in the background of a script, by nohup) goes on ignoring it.
    """

    def __init__(self) -> None:
        self._pressed = False

    def __enter__(self) -> "Interrupts":
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def take(self) -> bool:
        """Whether it was pressed since the last look."""
        pressed, self._pressed = self._pressed, False
        return pressed

    @contextmanager
    def raised(self) -> Iterator[None]:
        """While a question is asked, it is the exception that people expect."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _press(self, _number: int, _frame: FrameType | None) -> None:
        if self._pressed:
            raise KeyboardInterrupt
        self._pressed = True


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
    "y": Choice.CANCEL,  # the first that was offered
    "yes": Choice.CANCEL,
    "d": Choice.DETACH,
    "detach": Choice.DETACH,
    "": Choice.CONTINUE,
    "continue": Choice.CONTINUE,
    "n": Choice.CONTINUE,
    "no": Choice.CONTINUE,
}


def ask(console: Console, moot: Callable[[], bool] = lambda: False) -> Choice:
    """Ask what to do with the job; without a person to ask, cancel it.

    A second Ctrl-C, the end of input, or no answer in three: it detaches, the way out that destroys
    nothing. Once the question is ``moot``, for the job has ended, nobody need answer it.
    """
    if not (sys.stdin.isatty() and console.is_terminal):
        return Choice.CANCEL
    console.print()  # what the terminal echoed for Ctrl-C keeps its line
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
    """What is typed next; None once the question is ``moot``. Not ``input``: that sleeps on if
    Ctrl-C comes just before it reads.

    Raises:
        EOFError: there is nothing more to come.
    """
    while not select.select([sys.stdin], [], [], _LOOK_S)[0]:
        if moot():
            return None
    if not (line := sys.stdin.readline()):
        raise EOFError
    return line
