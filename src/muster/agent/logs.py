"""Kernels' output, as the supervisor wrote it.

A log is at most two files: ``NAME.log``, and before it ``NAME.log.1``, which was rotated away;
earlier output is not kept. ``NAME.log.start`` tells the offset in the whole output at which
``NAME.log`` begins. What a kernel wrote to stderr is in ``NAME.err``, in the same way, besides, if
its spec keeps that apart.
"""

import asyncio
import errno
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from muster.agent.removed_outputs import RemovedOutputs
from muster.wire.calls import (
    LogChunk,
    LogRequest,
    StderrNotApart,
)
from muster.wire.messages import (
    KernelKey,
)
from muster.wire.transport import LOG_WAIT_S, LOG_WINDOW_BYTES, SHORT_OUTPUT_BYTES

FIRST_POLL_S = 0.02
SLOWEST_POLL_S = 0.25
_ROTATION_TRIES = 20
_NOTE_BYTES = 100

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class _Span:
    """An open file of a log, and the offsets in the whole output at which it begins and ends."""

    fd: int
    start: int
    end: int


class LogFiles:
    """Reads the logs in the agent's directory.

    Args:
        directory: of the logs.
        is_live: whether a kernel may still write.
        removed: the outputs that are no longer kept.
    """

    def __init__(
        self, directory: Path, is_live: Callable[[KernelKey], bool], removed: RemovedOutputs
    ) -> None:
        self._directory = directory
        self._removed = removed
        self._is_live = is_live
        self._followed: dict[KernelKey, asyncio.Event] = {}

    def ended(self, key: KernelKey) -> None:
        """Take note that a kernel has ended; its followers need not wait any longer."""
        if (over := self._followed.get(key)) is not None:
            over.set()

    async def read(self, request: LogRequest) -> LogChunk:
        """A piece of output, a window at most. A request with ``follow`` waits a while for output.

        If there is no log, the kernel wrote nothing, or the log was removed: then the chunk says
        why.

        Raises:
            OSError: the log cannot be read.
            StderrNotApart: stderr alone was asked for.
        """
        key = (request.kernel, request.generation)
        deadline_s = asyncio.get_running_loop().time() + LOG_WAIT_S
        poll_s = FIRST_POLL_S
        while True:
            live = self._is_live(key)  # asked first, so that output up to its end is seen
            chunk = self.read_now(request, ended=not live)
            if chunk.data or not live or not request.follow:
                return chunk
            if asyncio.get_running_loop().time() >= deadline_s:
                return chunk
            await self._wait(key, poll_s)
            poll_s = min(2 * poll_s, SLOWEST_POLL_S)

    async def _wait(self, key: KernelKey, timeout_s: float) -> None:
        over = self._followed.setdefault(key, asyncio.Event())
        try:
            async with asyncio.timeout(timeout_s):
                await over.wait()
        except TimeoutError:
            pass
        finally:
            if self._followed.get(key) is over:
                del self._followed[key]

    async def short(self, names: Sequence[KernelKey]) -> Mapping[KernelKey, bytes]:
        """The short ones (``SHORT_OUTPUT_BYTES``) among these outputs, each with all that it has
        now, a window in all at most; not one whose beginning or whose file is gone."""
        found: dict[KernelKey, bytes] = {}
        left_bytes = LOG_WINDOW_BYTES
        for kernel, generation in names:
            await asyncio.sleep(0)
            asked_bytes = min(SHORT_OUTPUT_BYTES, left_bytes) + 1
            request = LogRequest(kernel, generation, limit_bytes=asked_bytes)
            try:
                chunk = self.read_now(request, ended=not self._is_live((kernel, generation)))
            except OSError:
                continue
            is_whole = chunk.offset == 0 and len(chunk.data) < asked_bytes
            if is_whole and chunk.removed is None:
                found[kernel, generation] = chunk.data
                left_bytes -= len(chunk.data)
        return found

    def read_now(self, request: LogRequest, *, ended: bool) -> LogChunk:
        """A piece of output that is there, a window at most; ``ended`` if no more can come.

        Raises:
            OSError: the log cannot be read.
            StderrNotApart: stderr alone was asked for.
        """
        with ExitStack() as files:
            spans = self._open(request, files)
            key = (request.kernel, request.generation)
            removed = self._removed.of(key)
            if removed is not None and ended and not spans:
                return LogChunk(0, b"", eof=True, removed=removed)
            if request.stderr and not spans and (ended or self.has(key)):
                raise StderrNotApart
            kept_from, end = (spans[0].start, spans[-1].end) if spans else (0, 0)
            offset = request.offset if request.offset >= 0 else end + request.offset
            offset = max(offset, kept_from)
            limit_bytes = max(0, min(request.limit_bytes, LOG_WINDOW_BYTES))
            data = b"".join(
                os.pread(span.fd, min(stop, span.end) - start, start - span.start)
                for span in spans
                if (start := max(offset, span.start)) < (stop := offset + limit_bytes)
                and start < span.end
            )
        return LogChunk(offset, data, eof=ended and offset + len(data) >= end)

    def has(self, key: KernelKey) -> bool:
        """Whether a kernel left a log."""
        kernel, generation = key
        log = self._directory / f"{kernel}.{generation}.log"
        return bool(_NAME.fullmatch(kernel)) and log.is_file()

    def _open(self, request: LogRequest, files: ExitStack) -> list[_Span]:
        """The files of a log, the oldest first, as they were at one moment."""
        if not _NAME.fullmatch(request.kernel):
            return []
        ending = ".err" if request.stderr else ".log"
        log = self._directory / f"{request.kernel}.{request.generation}{ending}"
        for _ in range(_ROTATION_TRIES):
            older = _open_file(log.with_suffix(f"{ending}.1"), files)
            newer = _open_file(log, files)
            start = _start_of_newer(log.with_suffix(f"{ending}.start"), older, newer)
            if start is not None:
                break
        else:  # the note could not be written because the disk was full
            start = _size_bytes(older)
        spans = [] if older is None else [_Span(older, start - _size_bytes(older), start)]
        return spans if newer is None else [*spans, _Span(newer, start, start + _size_bytes(newer))]


def _start_of_newer(note: Path, older: int | None, newer: int | None) -> int | None:
    """The offset at which NAME.log begins; None if it was rotated while both files were opened.

    Just before NAME.log becomes NAME.log.1, the offset of its end and its inode are written to
    NAME.log.start.
    """
    with ExitStack() as files:
        try:
            fd = _open_file(note, files)
            text = b"" if fd is None else os.pread(fd, _NOTE_BYTES, 0)
            rotated_end, rotated_inode = map(int, text.split())
        except ValueError:
            return _size_bytes(older)
    if older is not None and os.fstat(older).st_ino == rotated_inode:
        return rotated_end
    if newer is not None and os.fstat(newer).st_ino == rotated_inode:
        return rotated_end - _size_bytes(newer)
    return None


def _open_file(path: Path, files: ExitStack) -> int | None:
    """Open a regular file; None if there is none. No link is followed, and no pipe waited for."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    files.callback(os.close, fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.EINVAL, f"{path.name} is no regular file")
    return fd


def _size_bytes(fd: int | None) -> int:
    return 0 if fd is None else os.fstat(fd).st_size
