"""Output of kernels over HTTP: plain text, streamed from the agent that has it.

Each answer is about one attempt, and says in headers which one, where in its output the answer
begins, and what is to come, so that a reader can go on where a broken connection left off.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from muster.api.context import Api, Call
from muster.core.errors import Conflict, MusterError
from muster.core.views import LogEnd
from muster.store.queries.output import OutputSource, session_output, task_output
from muster.wire.messages import LogChunk, LogRequest

log = logging.getLogger(__name__)
router = APIRouter(tags=["logs"])

MAX_STREAM_S = 3600.0
"""Longest answer; the reader asks for the rest."""
ALL_BYTES = 2**62

ATTEMPT_HEADER = "Muster-Log-Attempt"
OFFSET_HEADER = "Muster-Log-Offset"
END_HEADER = "Muster-Log-End"

T = TypeVar("T")
Find = Callable[[], Awaitable[OutputSource]]


@dataclass(frozen=True, slots=True)
class _Window:
    """Which part is asked for; a negative offset counts from the end."""

    offset: int
    follow: bool


Tail = Annotated[int | None, Query(ge=1, description="only so many bytes of its end")]
Offset = Annotated[int, Query(ge=0, description="bytes of its beginning to leave out")]
Follow = Annotated[bool, Query(description="go on until the attempt has ended")]


@router.get("/v1/jobs/{ref}/logs", response_class=Response)
async def job_logs(
    call: Call,
    ref: str,
    task: Annotated[int, Query(ge=0)] = 0,
    attempt: Annotated[int | None, Query(ge=1, description="the latest when left out")] = None,
    tail_bytes: Tail = None,
    offset: Offset = 0,
    follow: Follow = False,
) -> Response:
    """The output of an attempt of a job's task."""

    async def find() -> OutputSource:
        return await call.api.reader.read(task_output, call.principal, ref, task, attempt)

    window = _Window(-tail_bytes if tail_bytes else offset, follow)
    return await _output(call.api, find, window)


@router.get("/v1/sessions/{ref}/logs", response_class=Response)
async def session_logs(
    call: Call,
    ref: str,
    kernel: Annotated[int, Query(ge=0)] = 0,
    tail_bytes: Tail = None,
    offset: Offset = 0,
    follow: Follow = False,
) -> Response:
    """The output of a session's kernel."""

    async def find() -> OutputSource:
        return await call.api.reader.read(session_output, call.principal, ref, kernel)

    window = _Window(-tail_bytes if tail_bytes else offset, follow)
    return await _output(call.api, find, window)


async def _output(api: Api, find: Find, window: _Window) -> Response:
    source = await find()
    if source.kernel is not None:
        return await _from_agent(api, source, window)
    if source.ended:
        return _answer(source, 0, _end(source))
    if not window.follow:
        raise Conflict(
            f"{source.entity} has no output yet: it is {source.state}; follow it to wait for it, "
            f"or ask why it does not start"
        )
    waiting = _after_start(api, find, source.entity)
    return _answer(source, 0, LogEnd.OPEN, _bounded(waiting, api.changes.closing))


async def _from_agent(api: Api, source: OutputSource, window: _Window) -> Response:
    """What there is, then what follows. The first piece is awaited here: an agent that cannot be
    reached is an error, not an empty answer."""
    assert source.kernel is not None and source.agent is not None, "it has started"
    request = LogRequest(source.kernel, source.generation, window.offset, ALL_BYTES)
    pieces = api.read_log(source.agent, request)
    first = await anext(pieces)
    end = _end(source) if first.eof else LogEnd.OPEN
    body = _joined(api, source, first, pieces, follow=window.follow)
    return _answer(source, first.offset, end, _bounded(body, api.changes.closing))


async def _joined(
    api: Api,
    source: OutputSource,
    first: LogChunk,
    pieces: AsyncIterator[LogChunk],
    *,
    follow: bool,
) -> AsyncIterator[bytes]:
    yield first.data
    last = first
    async for piece in pieces:
        yield piece.data
        last = piece
    if follow and not last.eof:
        async for data in _followed(api, source, last.offset + len(last.data)):
            yield data


async def _followed(api: Api, source: OutputSource, offset: int) -> AsyncIterator[bytes]:
    """From ``offset`` until the kernel has ended, or until output was lost to rotation: the reader
    asks again then, and is told where it goes on."""
    assert source.kernel is not None and source.agent is not None, "it has started"
    request = LogRequest(source.kernel, source.generation, offset, follow=True)
    try:
        async for piece in api.read_log(source.agent, request):
            if piece.offset != offset:
                return
            yield piece.data
            offset += len(piece.data)
    except MusterError as error:
        # The reader asks again, and is told this as an error.
        log.info("following %s ended: %s", source.entity, error)


async def _after_start(api: Api, find: Find, entity: str) -> AsyncIterator[bytes]:
    """The output of what has not started yet, from its beginning."""
    job_id = entity.partition("/")[0]
    with api.changes.bell(entity, ends=[job_id]) as bell:
        while True:
            bell.clear()
            source = await find()
            if source.kernel is not None or source.ended or api.changes.closing.is_set():
                break
            await bell.wait()
    if source.kernel is not None:
        async for data in _followed(api, source, 0):
            yield data


async def _bounded(source: AsyncIterator[T], closing: asyncio.Event) -> AsyncIterator[T]:
    """``source``, until the server stops or ``MAX_STREAM_S`` have passed."""
    loop = asyncio.get_running_loop()
    until = loop.time() + MAX_STREAM_S
    closed = asyncio.ensure_future(closing.wait())
    item: asyncio.Future[T] | None = None
    try:
        while True:
            item = asyncio.ensure_future(anext(source))
            limit_s = max(until - loop.time(), 0.0)
            await asyncio.wait({item, closed}, timeout=limit_s, return_when="FIRST_COMPLETED")
            if not item.done():
                return
            try:
                found = item.result()
            except StopAsyncIteration:
                return
            yield found
    finally:
        for waiting in (item, closed):
            if waiting is not None:
                waiting.cancel()
"""
"""
