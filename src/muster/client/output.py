"""Reading a kernel's output to its end, whatever happens to the connection meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import msgspec

from muster.client.encoding import query_of
from muster.client.errors import AgentUnreachable, OutputRemoved, Unreachable
from muster.client.exchange import (
    Answer,
    Exchange,
    Give,
    Pause,
    Read,
    Request,
    Stream,
    StreamBroke,
)
from muster.client.patience import PATIENCE_S, WAITING_S
from muster.core.errors import Conflict, MusterError, NotFound
from muster.core.views.work import (
    LOG_ATTEMPT_HEADER,
    LOG_END_HEADER,
    LOG_OFFSET_HEADER,
    LOG_STREAM_HEADER,
    STDERR,
    LogEnd,
)

SILENCE_S = 90.0
"""Longest silence within an answer; the server ends a silent answer earlier."""
_MAX_BREAKS = 20
"""Answers in a row that may break off before their first byte."""
_EMPTY_PAUSE_S = 0.2
"""The pause after an answer that ended at once and empty, as a stopping server's do."""

Ask = Callable[[Request, float], Exchange[Answer]]
"""Has a request answered, with a patience in seconds."""


def read_output(
    ask: Ask,
    path: str,
    whose: Mapping[str, int],
    *,
    attempt: int | None,
    tail_bytes: int | None,
    follow: bool,
    stderr: bool = False,
    retries: bool,
    on_cut: Callable[[int], None] | None = None,
) -> Stream:
    """The output at ``path``, piece by piece. It is asked for again from where the last answer
    ended, until the server says that no more will come.

    Args:
        whose: the task or kernel, as query parameters.
        attempt: None is the latest.
        tail_bytes: only the last so many bytes; with 0 only what is written from now on.
        stderr: of stderr alone.
        retries: whether later attempts are read too, one after the other.
        on_cut: called with the number of bytes before the next piece that rotation took away. Of
            the last ``tail_bytes`` it is called when all has been read, if there are not so many.

    Raises:
        MusterError: the server's refusal, or no answer.
    """
    reading = _Reading(attempt, None if tail_bytes is not None else 0, skips=tail_bytes == 0)
    patience_s = WAITING_S if follow else PATIENCE_S
    while True:
        asked = {**whose, **reading.place(tail_bytes), "follow": follow}
        if stderr:
            asked["stderr"] = True
        end, began_s = LogEnd.OPEN, time.monotonic()
        reading.got = 0
        try:
            answer = yield from ask(_opening(path, asked), patience_s)
            if stderr and answer.headers.get(LOG_STREAM_HEADER.lower()) != STDERR:
                raise MusterError("the controller is of a version that keeps no stderr apart")
            cut_bytes = reading.begins(answer)
            if on_cut is not None and cut_bytes > 0:
                on_cut(cut_bytes)
            while piece := (yield Read()):
                if new := reading.took(piece):
                    yield Give(new)
            end = LogEnd(answer.headers[LOG_END_HEADER.lower()])
            is_read = end is LogEnd.OPEN and not follow
        except (AgentUnreachable, OutputRemoved) as error:
            if not retries or reading.attempt is None:
                raise
            reading.missing, end, is_read = reading.missing or error, LogEnd.ATTEMPT, False
        except (Conflict, NotFound):
            if reading.missing is None:
                raise
            raise reading.missing from None  # there is no later attempt
        except StreamBroke as error:
            reading.broke(error)
            is_read = False
        is_over = end is LogEnd.ALL or (end is LogEnd.ATTEMPT and not retries)
        if is_over and reading.missing is not None:
            raise reading.missing
        if is_over or is_read:
            if on_cut is not None and reading.lacks(tail_bytes or 0):
                on_cut(reading.first)
            return
        if end is LogEnd.ATTEMPT:
            reading.next_attempt()
        elif not reading.got and time.monotonic() - began_s < _EMPTY_PAUSE_S:
            yield Pause(_EMPTY_PAUSE_S)


class _Reading(msgspec.Struct):
    """How far the output has been read.

    Attributes:
        attempt: the one that is read; None before the first answer, which is of the latest.
        offset: of the next byte; None before the first answer, where only the last bytes are
            wanted.
        skips: whether the next byte is the one before what is new, by which the server tells where
            that is.
        first: the offset of the first byte of this attempt that was given.
        got: how many bytes the last answer had.
        breaks: how many answers in a row broke off before their first byte.
        missing: why an earlier attempt has no output, which is told after the later ones.
    """

    attempt: int | None
    offset: int | None
    skips: bool
    first: int = 0
    got: int = 0
    breaks: int = 0
    missing: AgentUnreachable | OutputRemoved | None = None

    def place(self, tail_bytes: int | None) -> dict[str, int | bool | None]:
        """The place from which to read on, as query parameters."""
        attempt = self.attempt or None
        if self.offset is None:
            return {"tail_bytes": tail_bytes or 1, "attempt": attempt}
        return {"offset": self.offset, "attempt": attempt}

    def begins(self, answer: Answer) -> int:
        """Take note of where an answer begins, and tell how many bytes are missing before it."""
        self.attempt = int(answer.headers[LOG_ATTEMPT_HEADER.lower()])
        begins = int(answer.headers[LOG_OFFSET_HEADER.lower()])
        if self.offset is None:
            self.first = self.offset = begins
        cut_bytes, self.offset = begins - self.offset, begins
        return cut_bytes

    def took(self, piece: bytes) -> bytes:
        """Count a piece; the answer is what is new of it."""
        self.got += len(piece)
        self.offset = (self.offset or 0) + len(piece)
        is_known, self.skips = self.skips and self.first > 0, False
        return piece[1:] if is_known else piece

    def broke(self, error: StreamBroke) -> None:
        """Count an answer that broke off.

        Raises:
            Unreachable: too many did.
        """
        self.breaks = 0 if self.got else self.breaks + 1
        if self.breaks > _MAX_BREAKS:
            raise Unreachable(f"the output breaks off again and again: {error}") from None

    def lacks(self, tail_bytes: int) -> bool:
        """Whether fewer than the wanted last bytes were given, though there were earlier ones."""
        return self.first > 0 and (self.offset or 0) - self.first < tail_bytes

    def next_attempt(self) -> None:
        self.attempt, self.offset = (self.attempt or 0) + 1, 0
        self.first, self.skips = 0, False


def _opening(path: str, parameters: Mapping[str, int | bool | None]) -> Request:
    query = query_of(parameters)
    return Request("GET", f"{path}?{query}", timeout_s=SILENCE_S, opens=True)
