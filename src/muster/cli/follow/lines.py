"""The output of several tasks on one terminal: whole lines, each with its task's label."""

from collections.abc import Callable

import msgspec

MAX_LINE_BYTES = 16 * 1024 * 1024
"""A longer line is broken, so that a program that never ends its line cannot fill the memory."""
BAR_EVERY_S = 1.0
"""How often the state of a progress bar is shown."""


def visible(line: bytes | bytearray) -> bytes:
    """The text that a terminal shows of a line in the end: what follows its last carriage
    return."""
    return bytes(line.rstrip(b"\r").rpartition(b"\r")[2])


class _OpenLine(msgspec.Struct):
    """A line of a task that has not ended yet.

    Args:
        text: of the line; of a progress bar its present state, after a carriage return.
        shown: the state that was shown last.
        shown_at_s: when that was, or when the bar was seen first.
    """

    text: bytearray = msgspec.field(default_factory=bytearray)
    shown: bytes = b""
    shown_at_s: float | None = None

    @property
    def is_bar(self) -> bool:
        return self.text.startswith(b"\r")

    def add(self, data: bytes) -> None:
        self.text += data
        if self.is_bar or b"\r" in data:
            ended = b"\r" if self.text.endswith(b"\r") else b""
            self.text[:] = b"\r" + visible(self.text) + ended


class PrefixedLines:
    """Cuts the pieces of each task's output into lines that begin with the task's index.

    A progress bar, which returns the carriage and writes its line anew, would erase the index: of
    such a line the last state alone is shown.

    Args:
        width: of the longest label; with 0 the output stays as it is.
        label: what the lines of a task begin with; its index when left out.
    """

    def __init__(self, width: int, label: Callable[[int], str] = str) -> None:
        self._width = width
        self._label = label
        self._open: dict[int, _OpenLine] = {}

    def add(self, task: int, data: bytes) -> bytes:
        """The lines that can be shown now; an unfinished last line waits for its end."""
        if not self._width:
            return data
        first, *others = data.split(b"\n")
        self._extend(task, first)
        shown = []
        if others:
            *whole, rest = others
            shown.append(self._end(task))
            shown += [self._line(task, visible(line)) for line in whole]
            self._extend(task, rest)
        if task in self._open and len(self._open[task].text) > MAX_LINE_BYTES:
            shown.append(self._end(task))
        return b"".join(shown)

    def bars(self, now_s: float) -> bytes:
        """The states of progress bars that have changed, of each bar every ``BAR_EVERY_S``."""
        shown = []
        for task, line in self._open.items():
            if not line.is_bar:
                continue
            if line.shown_at_s is None:
                line.shown_at_s = now_s
            state = visible(line.text)
            if now_s - line.shown_at_s >= BAR_EVERY_S and state not in (b"", line.shown):
                line.shown, line.shown_at_s = state, now_s
                shown.append(self._line(task, state))
        return b"".join(shown)

    def finish(self, task: int) -> bytes:
        """The rest of a task's output, which has ended."""
        return self._end(task) if task in self._open else b""

    def _extend(self, task: int, data: bytes) -> None:
        if data:
            self._open.setdefault(task, _OpenLine()).add(data)

    def _end(self, task: int) -> bytes:
        """The open line, which ends; nothing if it is a bar whose last state has been shown."""
        line = self._open.pop(task, _OpenLine())
        text = visible(line.text)
        return b"" if text and text == line.shown else self._line(task, text)

    def _line(self, task: int, line: bytes) -> bytes:
        return b"%b | %b\n" % (self._label(task).rjust(self._width).encode(), line)


def prefix_width(tasks: int) -> int:
    """Digits of the largest index among ``tasks`` tasks; 0 for a single one."""
    return len(str(tasks - 1)) if tasks > 1 else 0


def last_lines(data: bytes, lines: int) -> bytes:
    """The end of ``data``: at most so many lines, the last of which may be unfinished."""
    if lines <= 0:
        return b""
    end = len(data)
    position = end - 1 if data.endswith(b"\n") else end
    for _ in range(lines):
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            return data
    return data[position + 1 :]
