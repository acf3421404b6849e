"""What Ctrl-C means while a job is followed."""

import sys
from enum import StrEnum

from rich.console import Console


class Choice(StrEnum):
    CANCEL = "cancel"
    DETACH = "detach"
    CONTINUE = "continue"


_ANSWERS = {
    "c": Choice.CANCEL,
    "cancel": Choice.CANCEL,
    "d": Choice.DETACH,
    "detach": Choice.DETACH,
    "": Choice.CONTINUE,
    "continue": Choice.CONTINUE,
}


def ask(console: Console) -> Choice:
    """Ask what to do with the job; without a person to ask, cancel it.

    A second Ctrl-C, or the end of input, detaches: the way out that destroys nothing.
    """
    if not (sys.stdin.isatty() and console.is_terminal):
        return Choice.CANCEL
    console.print()  # what the terminal echoed for Ctrl-C keeps its line
    while True:
        try:
            answer = console.input(
                "Interrupted: \\[c]ancel the job, \\[d]etach and let it run, "
                "or \\[Enter] to continue? "
            )
        except (KeyboardInterrupt, EOFError):
            console.print()
            return Choice.DETACH
        if (choice := _ANSWERS.get(answer.strip().lower())) is not None:
            return choice
