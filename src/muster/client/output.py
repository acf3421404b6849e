"""Reading a kernel's output to its end, whatever happens to the connection meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

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
    missing: AgentUnreachable | OutputRemoved | None = None  # raised after later attempts
    offset: int | None = None if tail_bytes is not None else 0
    skips = tail_bytes == 0  # the byte before what is new, by which the server tells where that is
    first = 0  # the offset of the first byte of this attempt that was given
    patience_s = WAITING_S if follow else PATIENCE_S
    breaks = 0
    while True:
        begin = {"tail_bytes": tail_bytes or 1} if offset is None else {"offset": offset}
        asked = {**whose, **begin, "attempt": attempt or None, "follow": follow}
        if stderr:
            asked["stderr"] = True
        end, got, began_s, broke = LogEnd.OPEN, 0, time.monotonic(), False
        try:
            answer = yield from ask(_opening(path, asked), patience_s)
            if stderr and answer.headers.get(LOG_STREAM_HEADER.lower()) != STDERR:
                raise MusterError("the controller is of a version that keeps no stderr apart")
            attempt = int(answer.headers[LOG_ATTEMPT_HEADER.lower()])
            begins = int(answer.headers[LOG_OFFSET_HEADER.lower()])
            if on_cut is not None and offset is not None and begins > offset:
                on_cut(begins - offset)
            first = begins if offset is None else first
            offset = begins
            while piece := (yield Read()):
                got += len(piece)
                offset += len(piece)
                if skips and first:
                    piece = piece[1:]
                skips = False
                if piece:
                    yield Give(piece)
            end = LogEnd(answer.headers[LOG_END_HEADER.lower()])
        except (AgentUnreachable, OutputRemoved) as error:
            if not retries or attempt is None:
                raise
            missing, end = missing or error, LogEnd.ATTEMPT
        except (Conflict, NotFound):
            if missing is None:
                raise
            raise missing from None  # there is no later attempt
        except StreamBroke as error:
            broke = True
            breaks = 0 if got else breaks + 1
            if breaks > _MAX_BREAKS:
                raise Unreachable(f"the output breaks off again and again: {error}") from None
        is_over = end is LogEnd.ALL or (end is LogEnd.ATTEMPT and not retries)
        is_read = end is LogEnd.OPEN and not follow and not broke
        if is_over and missing is not None:
            raise missing
        if is_over or is_read:
            given = (offset or 0) - first
            if on_cut is not None and first and given < (tail_bytes or 0):
                on_cut(first)
            return
        if end is LogEnd.ATTEMPT:
            attempt, offset, first, skips = (attempt or 0) + 1, 0, 0, False
        elif not got and time.monotonic() - began_s < _EMPTY_PAUSE_S:
            yield Pause(_EMPTY_PAUSE_S)


def _opening(path: str, parameters: Mapping[str, int | bool | None]) -> Request:
    query = query_of(parameters)
    return Request("GET", f"{path}?{query}", timeout_s=SILENCE_S, opens=True)
