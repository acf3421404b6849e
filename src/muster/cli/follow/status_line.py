"""One line at the bottom of the terminal, above which other output passes."""

import sys
from typing import TYPE_CHECKING

from muster.cli.streams import Line, is_drawn_on, say

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


class StatusLine:
    """A line on stderr that is redrawn in place, without running into output on stdout.

    Without a terminal the line is never drawn. Nor is it drawn after an unfinished line of output,
    which a program may be using to ask or to count.
    """

    def __init__(self, console: "Console | None" = None) -> None:
        """
        Args:
            console: of stderr; one is made where it is drawn on.
        """
        if console is None and is_drawn_on(sys.stderr):
            from muster.cli.screen import stderr

            console = stderr()
        self._console = console
        self._enabled = console is not None and console.is_terminal and not console.is_dumb_terminal
        self._shared = self._enabled and sys.stdout.isatty()
        self._drawn = False
        self._at_line_start = True  # as far as stdout goes to the terminal

    @property
    def enabled(self) -> bool:
        return self._enabled

    @property
    def width(self) -> int:
        """Characters that fit; the last column stays free, so that the line never wraps."""
        assert self._console is not None, "the line is drawn"
        return max(self._console.width - 1, 1)

    def show(self, line: "Line | Text") -> bool:
        """Draw the line, if there is a place for it; the answer says whether there was."""
        if self._console is None or not self._enabled or not self._at_line_start:
            return False
        drawn = line.drawn() if isinstance(line, Line) else line
        drawn.truncate(self.width, overflow="ellipsis")
        self.clear()
        self._console.print(drawn, end="", no_wrap=True)
        self._drawn = True
        return True

    def clear(self) -> None:
        if self._drawn and self._console is not None:
            from rich.control import Control
            from rich.segment import ControlType

            erase = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
            self._console.control(erase)
            self._drawn = False

    def output(self, data: bytes) -> None:
        """Pass a program's output on unchanged."""
        if not data:
            return
        self.clear()
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        self._at_line_start = not self._shared or data.endswith(b"\n")

    def say(self, line: Line) -> None:
        """Print a line on stderr that stays."""
        if self._console is None:
            say(line)
            return
        self.clear()
        if not self._at_line_start:
            self._console.print()
            self._at_line_start = True
        self._console.print(line.drawn(), soft_wrap=True)  # people copy commands: no line breaks
