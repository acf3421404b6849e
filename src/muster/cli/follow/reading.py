"""The part of a task's or kernel's output that a person wants to read."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from muster.cli.follow.chosen_lines import first_lines
from muster.cli.follow.lines import last_lines
from muster.cli.kinds.outputs import Extent
from muster.core.errors import Conflict

if TYPE_CHECKING:
    from muster.cli.kinds.outputs import Outputs
    from muster.client import Client

LINE_BYTES = 128
"""The assumed length of a line, for the first look at the end of an output."""
MIN_TAIL_BYTES = 64 * 1024
MAX_TAIL_BYTES = 16 * 1024 * 1024
"""The most of an output's end in which lines are looked for, unless so many are asked for that they
take more on an average."""
_LONG_LINE_BYTES = 1024
_GROWTH = 8
"""How much more is read where lines are longer than was assumed."""


class OutputNotes(Protocol):
    """Takes notes about the outputs of tasks or kernels, by their indexes; each is shown with the
    next piece of that output."""

    def cut(self, index: int, size: int) -> None:
        """So many bytes before the next piece are gone."""

    def shortened(self, index: int, size: int) -> None:
        """The next piece is all that the last so many bytes have of the lines that were asked for,
        and its first line is cut."""


class Unnoted:
    """Notes that nobody is shown; ``gone`` is the number of bytes that are."""

    def __init__(self) -> None:
        self.gone = 0

    def cut(self, index: int, size: int) -> None:
        self.gone += size

    def shortened(self, index: int, size: int) -> None:
        pass


class OutputReading(msgspec.Struct, frozen=True):
    """The part to read of the output of each task of a job, or of each kernel of a session.

    Args:
        id: of the job or session.
        outputs: of its kind.
        attempt: this attempt alone; None is the latest, or all attempts when following.
        tail: only the last so many lines.
        stderr: what was written to stderr alone.
        head: no more than so many lines of the beginning are read.
    """

    id: str
    outputs: "Outputs[Any]"
    attempt: int | None = None
    tail: int | None = None
    stderr: bool = False
    head: int | None = None

    def short(self, client: "Client", indexes: Sequence[int]) -> Mapping[int, bytes]:
        """The output, as ``read`` would yield it, of those of these tasks or kernels whose output
        is short and can be had together with others.

        Raises:
            MusterError: no answer, or a refusal.
        """
        if self.attempt is not None:
            return {}
        short = self.outputs.short(client, self.id, indexes)
        if self.tail is None:
            return short
        return {index: last_lines(data, self.tail) for index, data in short.items()}

    def read(
        self, client: "Client", index: int, notes: OutputNotes, follow: bool = False
    ) -> Iterator[bytes]:
        """The output of the task or kernel with this index, piece by piece.

        Raises:
            MusterError: the output cannot be read, or has not begun and is not followed.
        """
        if self.tail is None:
            pieces = self._pieces(client, index, notes, None, follow)
            yield from pieces if self.head is None else first_lines(pieces, self.head)
            return
        try:
            end, is_whole = self._end(client, index, self.tail, notes)
        except Conflict:  # the task has not started: all of its output is new
            if not follow:
                raise
            end, is_whole = b"", True
        if not follow:
            yield end
        elif is_whole:
            yield from self._pieces(client, index, notes, None, True)
        elif not end:
            yield from self._pieces(client, index, notes, 0, True)
        else:
            # New output moves the window; so it begins one byte before the lines, and its part of
            # an earlier line is left out.
            window = self._pieces(client, index, notes, len(end) + 1, True)
            yield from _after_first_newline(window, len(end) + 1)

    def _end(
        self, client: "Client", index: int, lines: int, notes: OutputNotes
    ) -> tuple[bytes, bool]:
        """The last lines of the output as it is now, and whether that is the whole output. More and
        more of the end is read, until there are as many whole lines."""
        asked_bytes = max(MIN_TAIL_BYTES, lines * LINE_BYTES)
        most_bytes = max(MAX_TAIL_BYTES, lines * _LONG_LINE_BYTES)
        while True:
            noted = Unnoted()
            data = b"".join(self._pieces(client, index, noted, asked_bytes, False))
            end = last_lines(data, lines)
            if len(end) < len(data):
                return end, False
            if len(data) < asked_bytes:
                if end and noted.gone:
                    notes.cut(index, noted.gone)
                return end, not noted.gone
            if asked_bytes >= most_bytes:
                if end:
                    notes.shortened(index, len(data))
                return end, False
            asked_bytes = min(asked_bytes * _GROWTH, most_bytes)

    def _pieces(
        self, client: "Client", index: int, notes: OutputNotes, tail_bytes: int | None, follow: bool
    ) -> Iterator[bytes]:
        def cut(size: int) -> None:
            notes.cut(index, size)

        every = follow and self.attempt is None and self.tail is None
        extent = Extent(self.attempt, every, tail_bytes, follow, cut, self.stderr)
        return self.outputs.pieces(client, self.id, index, extent)


def _after_first_newline(pieces: Iterator[bytes], within: int) -> Iterator[bytes]:
    """The pieces without everything up to the first newline, if one is ``within`` so many bytes."""
    held = b""
    for piece in pieces:
        held += piece
        if len(held) >= within:
            break
    yield held[held.find(b"\n", 0, within) + 1 :]
    yield from pieces
