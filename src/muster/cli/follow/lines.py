"""The output of several tasks on one terminal: whole lines, each with its task's number."""

MAX_LINE_BYTES = 64 * 1024
"""A longer line is broken, so that a program that never ends its line cannot fill the memory."""


class PrefixedLines:
    """Cuts the pieces of each task's output into lines that begin with the task's index.

    Args:
        width: digits of the largest index; with 0 the output stays as it is.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._partial: dict[int, bytes] = {}

    def add(self, task: int, data: bytes) -> bytes:
        """The lines that can be shown now; an unfinished last line waits for its end."""
        if not self._width:
            return data
        *lines, rest = (self._partial.pop(task, b"") + data).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            lines.append(rest)
            rest = b""
        if rest:
            self._partial[task] = rest
        return b"".join(self._line(task, line) for line in lines)

    def finish(self, task: int) -> bytes:
        """The rest of a task's output, which has ended."""
        rest = self._partial.pop(task, b"")
        return self._line(task, rest) if rest else b""

    def _line(self, task: int, line: bytes) -> bytes:
        return b"%*d | %b\n" % (self._width, task, line)


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
