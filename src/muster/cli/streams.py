"""The two streams: JSON and output on stdout; lines for people on stderr, each part with its style.

Rich draws such a line on a terminal (``screen``). Elsewhere it is written as it is, because rich
takes longer to import than most commands run.
"""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from muster.core.text import printable

if TYPE_CHECKING:
    from rich.text import Text

    from muster.core.views.base import View

OF_STATE = "state:"
"""Begins the style of a state's word, before the state: ``screen.status`` knows its colour."""

Part = tuple[str, str]
"""Words, and their style as rich names it; empty for none."""


class Line:
    """Words of one line, made of parts with and without a style, and of other lines."""

    def __init__(self, *parts: "str | Part | Line") -> None:
        self.parts: tuple[Part, ...] = ()
        for part in parts:
            self.append(part)

    @property
    def text(self) -> str:
        return "".join(words for words, _ in self.parts)

    def append(self, part: "str | Part | Line") -> None:
        if isinstance(part, Line):
            self.parts += part.parts
        else:
            self.parts += ((part, "") if isinstance(part, str) else part,)

    def drawn(self) -> "Text":
        """The line as rich draws it."""
        from rich.text import Text

        from muster.cli.screen import status

        line = Text()
        for words, style in self.parts:
            if style.startswith(OF_STATE):
                line.append_text(status(style.removeprefix(OF_STATE)))
            else:
                line.append(words, style)
        return line


def state_word(state: str) -> Part:
    """A state as people read it, in its colour."""
    return (state.lower().replace("_", " "), f"{OF_STATE}{state}")


def is_drawn_on(stream: TextIO) -> bool:
    """Whether rich might draw on a stream: it is a terminal, or the environment says so of whatever
    is there, by the variables that rich knows."""
    told_so = os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE") == "1"
    return bool(told_so) or stream.isatty()


def say(*parts: "str | Part | Line") -> None:
    """Write a line to stderr, without line breaks in it: people copy commands from it."""
    line = Line(*parts)
    if is_drawn_on(sys.stderr):
        from muster.cli.screen import stderr

        stderr().print(line.drawn(), soft_wrap=True)
    else:
        sys.stderr.write(f"{plain(line.text)}\n")


def plain(text: str) -> str:
    """Other people's text, cleaned, for output that does not pass through a console of
    ``screen``."""
    return printable(text)


def print_json(value: "View | Sequence[View | dict[str, Any]] | dict[str, Any]") -> None:
    """Print the client's answer as JSON on stdout, and nothing else."""
    import json

    import msgspec

    sys.stdout.write(json.dumps(msgspec.to_builtins(value), indent=2) + "\n")


def discard_stdout() -> None:
    """Drop the rest of the buffer, which nobody reads any longer, so that it does not fail again at
    exit."""
    _discard(sys.stdout)


def discard_stderr() -> None:
    """As ``discard_stdout``, for stderr."""
    _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
