"""Readers of replicas' answers: heads and bodies of HTTP, and values of metrics.

They are pure, take time in proportion to the bytes that they are given, and tell nothing of an
answer's own text. It imports modules of the probing process only, which is to be small.
"""

import math
import re
from dataclasses import dataclass
from itertools import islice

MAX_HEAD = 16 * 1024
"""Bytes of an answer's head, informational answers before it included."""
MAX_INFORMATIONAL = 10
MAX_BODY = 256 * 1024
"""Bytes of a body with metrics, as they were sent."""
MAX_CHUNKS = 2_000
MAX_SERIES = 2_000

_PREFIX = b"HTTP/1."
_STATUS = re.compile(rb"HTTP/1\.[0-9] ([1-9][0-9]{2})[ \r\n]")
_END = re.compile(rb"\n\r?\n")
_LENGTH = re.compile(rb"\ncontent-length:[ \t]*([0-9]{1,12})[ \t]*\r?\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\ntransfer-encoding:[ \t]*chunked[ \t]*\r?\n", re.IGNORECASE)
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,6})[ \t]*(?:;[^\r\n]{0,100})?\r\n")
_LABELS = re.compile(rb'\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\}')
_LONGEST_NUMBER = 40
_SWITCHING_PROTOCOLS = 101


class NotUnderstood(ValueError):
    """An answer cannot be read. The message goes on from "the answer …"."""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of an answer that is not informational, and ends before ``end``."""

    status: int
    begin: int
    end: int


def read_head(received: bytes) -> Head | None:
    """The head of the final answer; None while it is incomplete.

    Raises:
        NotUnderstood: it is none of HTTP/1.x, or too long.
    """
    begin = 0
    for _ in range(MAX_INFORMATIONAL + 1):
        if not received.startswith(_PREFIX, begin):
            if not _PREFIX.startswith(received[begin : begin + len(_PREFIX)]):
                raise NotUnderstood("is not HTTP/1.1")
            return None
        found = _END.search(received, begin, MAX_HEAD)
        if found is None:
            if len(received) >= MAX_HEAD:
                raise NotUnderstood(f"has a head of more than {MAX_HEAD // 1024} KiB")
            return None
        status = _STATUS.match(received, begin)
        if status is None:
            raise NotUnderstood("is not HTTP/1.1")
        code = int(status[1])
        if code >= 200 or code == _SWITCHING_PROTOCOLS:
            return Head(code, begin, found.end())
        begin = found.end()
    raise NotUnderstood("does not come to its end: one informational answer follows another")


def read_body(received: bytes, head: Head, *, ended: bool) -> bytes | None:
    """The body behind a head; None while it is incomplete.

    Args:
        ended: whether the connection has ended, so that no more will come.

    Raises:
        NotUnderstood: it is too long, was cut off, or is no body.
    """
    fields = received[head.begin : head.end]
    size = len(received) - head.end
    if _CHUNKED.search(fields) is not None:
        if ended or received.endswith(b"0\r\n\r\n"):
            return _joined(received, head.end)
        length = None
    else:
        length = int(found[1]) if (found := _LENGTH.search(fields)) else None
    if max(size, length or 0) > MAX_BODY:
        raise NotUnderstood(f"has a body of more than {MAX_BODY // 1024} KiB")
    if length is not None and size >= length:
        return received[head.end : head.end + length]
    if not ended:
        return None
    if length is not None:
        raise NotUnderstood("was cut off")
    return received[head.end :]


def _joined(received: bytes, begin: int) -> bytes:
    """The chunks of a body that begins there."""
    chunks: list[bytes] = []
    for _ in range(MAX_CHUNKS):
        size = _CHUNK.match(received, begin)
        if size is None:
            raise NotUnderstood("was cut off, or has chunks that are none")
        begin = size.end()
        length = int(size[1], 16)
        if length == 0:
            return b"".join(chunks)
        chunks.append(received[begin : begin + length])
        begin += length + len(b"\r\n")
    raise NotUnderstood(f"has more than {MAX_CHUNKS} chunks")


def lines_of(metric: str) -> re.Pattern[bytes]:
    """The pattern of a metric's lines in Prometheus' text format: its group is the line after the
    name."""
    name = re.escape(metric.encode())
    return re.compile(rb"^[ \t]*" + name + rb"(?![A-Za-z0-9_:])([^\n]*)", re.MULTILINE)


def metric_sum(body: bytes, lines: re.Pattern[bytes]) -> float | None:
    """The sum of a metric's series; None if there is none, or one of them has no finite value."""
    total, count = 0.0, 0
    for line in islice(lines.finditer(body), MAX_SERIES + 1):
        total += _number(line[1])
        count += 1
    return total if 0 < count <= MAX_SERIES and math.isfinite(total) else None


def _number(rest: bytes) -> float:
    """The number in a line, after the metric's name and before a time, if there is one; NaN if it
    is none."""
    rest = rest.strip()
    if rest.startswith(b"{"):
        labels = _LABELS.match(rest)
        rest = rest[labels.end() :] if labels is not None else b""
    words = rest.split(None, 2)
    if len(words) not in (1, 2) or len(words[0]) > _LONGEST_NUMBER:
        return math.nan
    try:
        return float(words[0])
    except ValueError:
        return math.nan
