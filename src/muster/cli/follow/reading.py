"""The part of a task's or kernel's output that a person wants to read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from muster.cli.follow.lines import last_lines
from muster.cli.kinds.outputs import Extent
from muster.core.errors import Conflict

if TYPE_CHECKING:
    from muster.cli.kinds.outputs import Outputs
    from muster.client import Client

LINE_BYTES = 1024
"""The assumed length of a line, when a number of lines is asked for."""
MIN_TAIL_BYTES = 64 * 1024

OnCut = Callable[[int, int], None]
"""Called with the index of a task or kernel and the number of its output's bytes that are gone."""


@dataclass(frozen=True, slots=True)
class OutputReading:
    """The part to read of the output of each task of a job, or of each kernel of a session.

    Args:
        id: of the job or session.
        outputs: of its kind.
        attempt: this attempt alone; None is the latest, or all attempts when following.
        tail: only the last so many lines.
    """

    id: str
    outputs: "Outputs[Any]"
    attempt: int | None = None
    tail: int | None = None

    def read(
        self, client: "Client", index: int, on_cut: OnCut, follow: bool = False
    ) -> Iterator[bytes]:
        """The output of the task or kernel with this index, piece by piece.

        Raises:
            MusterError: the output cannot be read, or has not begun and is not followed.
        """
        if self.tail is None:
            yield from self._pieces(client, index, on_cut, None, follow)
            return
        asked_bytes = max(MIN_TAIL_BYTES, self.tail * LINE_BYTES)
        try:
            data = b"".join(self._pieces(client, index, on_cut, asked_bytes, False))
        except Conflict:  # the task has not started: all of its output is new
            if not follow:
                raise
            data = b""
        end = last_lines(data, self.tail)
        if not follow:
            yield end
        elif len(end) == len(data) < asked_bytes:  # the whole output
            yield from self._pieces(client, index, on_cut, None, True)
        elif not end:
            yield from self._pieces(client, index, on_cut, 0, True)
        else:
            # New output moves the window; so it begins one byte before the lines, and its part of
            # an earlier line is left out.
            window = self._pieces(client, index, on_cut, len(end) + 1, True)
            yield from _after_first_newline(window, len(end) + 1)

    def _pieces(
        self, client: "Client", index: int, on_cut: OnCut, tail_bytes: int | None, follow: bool
    ) -> Iterator[bytes]:
        def cut(size: int) -> None:
            on_cut(index, size)

        every = follow and self.attempt is None and self.tail is None
        extent = Extent(self.attempt, every, tail_bytes, follow, cut)
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
