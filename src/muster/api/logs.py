"""Output of kernels over HTTP: plain text, streamed from the agent that has it.

Each answer holds output of one attempt. Its headers name the attempt, the offset at which the
answer begins, and whether more is to come, so that a reader can go on where a connection broke.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import Connection
from starlette.responses import Response

from muster.api.answers import answer
from muster.api.context import Api, Call, Caller
from muster.api.streamed import Streamed
from muster.core.errors import Conflict, InvalidSpec, MusterError, NotFound, Problem
from muster.core.ids import AgentId
from muster.core.owner import Owner, Principal
from muster.core.specs import MAX_GANG, MAX_TASKS
from muster.core.task_ranges import TaskRanges
from muster.core.views.work import (
    LOG_ATTEMPT_HEADER,
    LOG_END_HEADER,
    LOG_OFFSET_HEADER,
    LOG_STREAM_HEADER,
    MAX_SHORT_OUTPUTS,
    STDERR,
    LogEnd,
    ShortOutputs,
    ShortOutputView,
)
from muster.store.queries.output import (
    OutputSource,
    begun_outputs,
    session_output,
    task_output,
)
from muster.store.queries.tasks import job_row, task_view
from muster.wire.calls import (
    LogChunk,
    LogRequest,
)
from muster.wire.log_reading import OutputUnreachable
from muster.wire.messages import KernelKey

log = logging.getLogger(__name__)
router = APIRouter(tags=["logs"])

SILENCE_S = 60.0
"""An answer without output for so long ends; the reader asks for the rest."""
MAX_ATTEMPT = 1_000_000
_ALL_BYTES = 2**62
_TEXT = "text/plain; charset=utf-8"

Find = Callable[[int | None], Awaitable[OutputSource]]
"""Looks for the output of an attempt, of the latest one for None; a session has no attempts."""
Body = AsyncGenerator[bytes, None]

Tail = Annotated[
    int | None, Query(ge=1, le=_ALL_BYTES, description="only so many bytes of its end")
]
Offset = Annotated[
    int, Query(ge=0, le=_ALL_BYTES, description="so many bytes of its beginning are left out")
]
Tasks = Annotated[
    str,
    Query(
        max_length=4000,
        description=f"indexes and ranges of them, as 3,17,40-45; {MAX_SHORT_OUTPUTS} at most",
    ),
]
Follow = Annotated[bool, Query(description="wait for it to start, go on until it has ended")]
Stderr = Annotated[
    bool, Query(description="of stderr alone, where the spec keeps it apart; bytes are those of it")
]


@router.get("/v1/jobs/{ref}/logs", response_class=Response)
async def get_job_logs(
    call: Call,
    ref: str,
    task: Annotated[int, Query(ge=0, lt=MAX_TASKS)] = 0,
    attempt: Annotated[
        int | None, Query(ge=1, le=MAX_ATTEMPT, description="the latest when left out")
    ] = None,
    tail_bytes: Tail = None,
    offset: Offset = 0,
    follow: Follow = False,
    stderr: Stderr = False,
) -> Response:
    """The output of an attempt of a job's task."""

    async def find(of: int | None) -> OutputSource:
        return await call.read(_attempt_output, call.principal, ref, task, of, follow)

    begin = -tail_bytes if tail_bytes else offset
    return await _output(call, find, begin, attempt=attempt, follow=follow, stderr=stderr)


@router.get("/v1/jobs/{ref}/outputs", response_model=ShortOutputs)
async def get_short_outputs(call: Call, ref: str, tasks: Tasks) -> Response:
    """The present outputs of the latest attempts of several tasks, as far as they are short and
    their agents are there: a few requests for a whole sweep. Output that is left out is read by
    itself, which tells what is the matter with it.

    Raises:
        Busy: too many readers of output, or of this owner's.
    """
    with call.api.output_readers.used(call.principal.owner):
        begun = await call.read(begun_outputs, call.principal, ref, _indexes(tasks))
        of_agents: defaultdict[AgentId, list[KernelKey]] = defaultdict(list)
        for each in begun:
            of_agents[each.agent].append((each.kernel, each.generation))
        asked = [call.api.short_outputs(agent, names) for agent, names in of_agents.items()]
        short: dict[KernelKey, bytes] = {}
        for found in await asyncio.gather(*asked):
            short |= found
    items = (
        ShortOutputView(task=each.task, attempt=each.attempt, data=data)
        for each in begun
        if (data := short.get((each.kernel, each.generation))) is not None
    )
    return answer(ShortOutputs(items=tuple(items)))


def _indexes(tasks: str) -> list[int]:
    """
    Raises:
        InvalidSpec: the text names no tasks, or too many.
    """
    try:
        ranges = TaskRanges.parse(tasks)
    except ValueError as error:
        raise InvalidSpec([Problem("tasks", repr(tasks[:80]), str(error))]) from None
    if len(ranges) > MAX_SHORT_OUTPUTS:
        expected = f"expected at most {MAX_SHORT_OUTPUTS} tasks"
        raise InvalidSpec([Problem("tasks", f"{len(ranges)} of them", expected)])
    return [ranges[position] for position in range(len(ranges))]


def _attempt_output(
    connection: Connection,
    principal: Principal,
    ref: str,
    index: int,
    attempt: int | None,
    follow: bool,
) -> OutputSource:
    """The output of an attempt that exists, as ``task_output``; a reader that follows may name the
    next attempt too.

    Raises:
        NotFound, Ambiguous: as ``task_output``; NotFound also when there is no such attempt.
    """
    source = task_output(connection, principal, ref, index, attempt)
    if attempt is None or source.kernel is not None:
        return source
    made = task_view(connection, job_row(connection, principal, ref), index).attempt
    if attempt > (made + 1 if follow else max(made, 1)):
        there_are = f"its attempts are 1 to {made}" if made else "it has had none yet"
        raise NotFound(f"task {source.entity} has no attempt {attempt}: {there_are}")
    return source


@router.get("/v1/sessions/{ref}/logs", response_class=Response)
async def get_session_logs(
    call: Call,
    ref: str,
    kernel: Annotated[int, Query(ge=0, lt=MAX_GANG)] = 0,
    tail_bytes: Tail = None,
    offset: Offset = 0,
    follow: Follow = False,
    stderr: Stderr = False,
) -> Response:
    """The output of a session's kernel."""

    async def find(_: int | None) -> OutputSource:
        return await call.read(session_output, call.principal, ref, kernel)

    begin = -tail_bytes if tail_bytes else offset
    return await _output(call, find, begin, follow=follow, stderr=stderr)


async def _output(
    call: Caller,
    find: Find,
    offset: int,
    *,
    attempt: int | None = None,
    follow: bool,
    stderr: bool,
) -> Response:
    """The answer from ``offset`` on; a negative offset counts from the end.

    Raises:
        Busy: too many readers of output, or of this owner's.
    """
    owner = call.principal.owner
    with ExitStack() as held:
        held.enter_context(call.api.output_readers.used(owner))
        source = await find(attempt)
        answer = await _answer(call.api, owner, find, source, offset, follow=follow, stderr=stderr)
        if stderr:
            answer.headers[LOG_STREAM_HEADER] = STDERR
        if isinstance(answer, Streamed):
            answer.close_after(held.pop_all())
        return answer


async def _answer(
    api: Api,
    owner: Owner,
    find: Find,
    source: OutputSource,
    offset: int,
    *,
    follow: bool,
    stderr: bool,
) -> Response:
    if source.kernel is not None:
        return await _from_agent(api, source, offset, follow=follow, stderr=stderr)
    if source.ended:  # the attempt never started
        return Response(headers=_headers(source, 0, ended=True), media_type=_TEXT)
    if not follow:
        raise Conflict(
            f"{source.entity} has no output yet because it is {str(source.state).lower()}: "
            f"follow it (-f) to wait for it, or ask `muster why` what it waits for"
        )
    # The answer's headers name this attempt, which may fail before the next look.
    body = _after_start(api, owner, lambda: find(source.attempt), source.entity, stderr=stderr)
    await anext(body)  # so that one waiter too many gets an error, not a broken stream
    body = _bounded(api, body)
    return Streamed(body, headers=_headers(source, 0, ended=False), media_type=_TEXT)


async def _from_agent(
    api: Api, source: OutputSource, offset: int, *, follow: bool, stderr: bool
) -> Response:
    """The present output, then the output that follows. The first piece is awaited here, so that an
    agent that cannot be reached makes an error and not an empty answer.

    A reader that follows a kernel that may run still waits for its agent.

    Raises:
        AgentUnreachable: see ``LogReader.read``.
    """
    pieces = api.read_log(_agent(source), _request(source, offset, follow=False, stderr=stderr))
    try:
        first = await anext(pieces)
    except OutputUnreachable as error:
        if not follow or source.ended or offset < 0:
            raise OutputUnreachable(source.agent_name, error.why) from None
        body = _bounded(api, _followed(api, source, offset, stderr=stderr))
        headers = _headers(source, offset, ended=False)
        return Streamed(body, headers=headers, media_type=_TEXT)
    body = _joined(api, source, first, pieces, follow=follow, stderr=stderr)
    if follow:
        body = _bounded(api, body)
    headers = _headers(source, first.offset, ended=first.eof)
    return Streamed(body, headers=headers, media_type=_TEXT)


def _headers(source: OutputSource, offset: int, *, ended: bool) -> dict[str, str]:
    end = LogEnd.OPEN
    if ended:
        end = LogEnd.ALL if source.last else LogEnd.ATTEMPT
    return {
        LOG_ATTEMPT_HEADER: str(source.attempt),
        LOG_OFFSET_HEADER: str(offset),
        LOG_END_HEADER: end.value,
        "Cache-Control": "no-store",
    }


async def _joined(
    api: Api,
    source: OutputSource,
    first: LogChunk,
    pieces: AsyncIterator[LogChunk],
    *,
    follow: bool,
    stderr: bool,
) -> Body:
    """The first piece and the others. An answer that does not follow is cut off when the agent is
    lost, so that nobody takes it for the whole output."""
    offset, eof = first.offset + len(first.data), first.eof
    if first.data:
        yield first.data
    async for piece in pieces:
        if follow and piece.offset != offset:
            return
        yield piece.data
        offset, eof = piece.offset + len(piece.data), piece.eof
    if follow and not eof:
        async for data in _followed(api, source, offset, stderr=stderr):
            yield data


async def _followed(api: Api, source: OutputSource, offset: int, *, stderr: bool) -> Body:
    """The output from ``offset`` until the kernel has ended, or until rotation took output away:
    then the reader asks again, and is told where the output goes on."""
    try:
        request = _request(source, offset, follow=True, stderr=stderr)
        async for piece in api.read_log(_agent(source), request):
            if piece.offset != offset:
                return
            yield piece.data
            offset += len(piece.data)
    except MusterError as error:
        # The reader asks again, and gets this as an error.
        log.info("following %s ended: %s", source.entity, error)


async def _after_start(
    api: Api,
    owner: Owner,
    find: Callable[[], Awaitable[OutputSource]],
    entity: str,
    *,
    stderr: bool,
) -> Body:
    """The output of an attempt that has not started yet, from its beginning. An empty piece comes
    first.

    Raises:
        Busy: too many wait already.
    """
    job_id = entity.partition("/")[0]
    with api.changes.bell(owner, entity, ends=[job_id]) as bell:
        yield b""
        while True:
            bell.clear()
            source = await find()
            if source.kernel is not None or source.ended:
                break
            await bell.wait()
    if source.kernel is not None:
        async for data in _followed(api, source, 0, stderr=stderr):
            yield data


async def _bounded(api: Api, body: Body) -> Body:
    """``body``, until the server stops or ``SILENCE_S`` pass without a piece."""
    closing = asyncio.ensure_future(api.changes.closing.wait())
    piece: asyncio.Task[bytes] | None = None
    try:
        while True:
            piece = asyncio.create_task(_next(body))
            await asyncio.wait({piece, closing}, timeout=SILENCE_S, return_when="FIRST_COMPLETED")
            if not piece.done():
                return
            try:
                found = piece.result()
            except StopAsyncIteration:
                return
            if found:
                yield found
    finally:
        closing.cancel()
        if piece is not None and not piece.done():
            piece.cancel()
            await asyncio.wait({piece})
        await body.aclose()


async def _next(body: Body) -> bytes:
    return await anext(body)


def _agent(source: OutputSource) -> AgentId:
    assert source.agent is not None, "it has started"
    return source.agent


def _request(source: OutputSource, offset: int, *, follow: bool, stderr: bool) -> LogRequest:
    assert source.kernel is not None, "it has started"
    return LogRequest(source.kernel, source.generation, offset, _ALL_BYTES, follow, stderr)
