"""What a person wants to read of the output of a task or a kernel."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.cli.follow.lines import last_lines
from muster.core.errors import Conflict

if TYPE_CHECKING:
    from muster.client import Client

LINE_BYTES = 1024
"""How long lines are taken to be when so many of them are asked for."""
MIN_TAIL_BYTES = 64 * 1024

OnCut = Callable[[int, int], None]
"""Hears of a task or kernel that so many bytes of its output are gone."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Which of the output of each task of a job, or of each kernel of a session.

    Args:
        id: of the job or session.
        attempt: this one alone; None is the latest, or all of them where they are followed.
        tail: only so many lines of the end.
    """

    id: str
    is_job: bool
    attempt: int | None = None
    tail: int | None = None

    def read(
        self, client: "Client", index: int, on_cut: OnCut, follow: bool = False
    ) -> Iterator[bytes]:
        """The output of the task or kernel with this index, piece by piece.

        Raises:
            MusterError: it cannot be read, or has not begun and is not followed.
        """
        if self.tail is None:
            yield from self._pieces(client, index, on_cut, None, follow)
            return
        asked_bytes = max(MIN_TAIL_BYTES, self.tail * LINE_BYTES)
        try:
            data = b"".join(self._pieces(client, index, on_cut, asked_bytes, False))
        except Conflict:  # it has not started: all that comes is new
            if not follow:
                raise
            data = b""
        end = last_lines(data, self.tail)
        if not follow:
            yield end
        elif len(end) == len(data) < asked_bytes:  # all there is
            yield from self._pieces(client, index, on_cut, None, True)
        elif not end:
            yield from self._pieces(client, index, on_cut, 0, True)
        else:
            # What came meanwhile moves the window; so it begins one byte before the lines, and
            # what it has of a line that began earlier is left out.
            window = self._pieces(client, index, on_cut, len(end) + 1, True)
            yield from _after_first_newline(window, len(end) + 1)

    def _pieces(
        self, client: "Client", index: int, on_cut: OnCut, tail_bytes: int | None, follow: bool
    ) -> Iterator[bytes]:
        def cut(size: int) -> None:
            on_cut(index, size)

        if not self.is_job:
            return client.session_logs(
                self.id, kernel=index, tail_bytes=tail_bytes, follow=follow, on_cut=cut
            )
        every = follow and self.attempt is None and self.tail is None
        return client.logs(
            self.id,
            task=index,
            attempt=1 if every else self.attempt,
            tail_bytes=tail_bytes,
            follow=follow,
            retries=every or None,
            on_cut=cut,
        )


def _after_first_newline(pieces: Iterator[bytes], within: int) -> Iterator[bytes]:
    """Leave out all up to the first newline, if there is one in so many bytes."""
    held = b""
    for piece in pieces:
        held += piece
        if len(held) >= within:
            break
    yield held[held.find(b"\n", 0, within) + 1 :]
    yield from pieces
