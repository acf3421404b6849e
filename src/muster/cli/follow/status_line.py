"""One line at the bottom of the terminal, above which other output passes."""

import sys

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

_ERASE = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))


class StatusLine:
    """A line on stderr that is redrawn in place, without running into output on stdout.

    Without a terminal the line is never drawn. Nor is it drawn after an unfinished line of output,
    which a program may be using to ask or to count.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._enabled = console.is_terminal and not console.is_dumb_terminal
        self._shared = self._enabled and sys.stdout.isatty()
        self._drawn = False
        self._at_line_start = True  # as far as stdout goes to the terminal

    @property
    def enabled(self) -> bool:
        return self._enabled

    @property
    def width(self) -> int:
        """Characters that fit; the last column stays free, so that the line never wraps."""
        return max(self._console.width - 1, 1)

    def show(self, line: Text) -> bool:
        """Draw the line, if there is a place for it; the answer says whether there was."""
        if not self._enabled or not self._at_line_start:
            return False
        line.truncate(self.width, overflow="ellipsis")
        self.clear()
        self._console.print(line, end="", no_wrap=True)
        self._drawn = True
        return True

    def clear(self) -> None:
        if self._drawn:
            self._console.control(_ERASE)
            self._drawn = False

    def output(self, data: bytes) -> None:
        """Pass a program's output on unchanged."""
        if not data:
            return
        self.clear()
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        self._at_line_start = not self._shared or data.endswith(b"\n")

    def say(self, line: Text) -> None:
        """Print a line on stderr that stays."""
        self.clear()
        if not self._at_line_start:
            self._console.print()
            self._at_line_start = True
        self._console.print(line, soft_wrap=True)  # commands in it are copied: no line breaks
