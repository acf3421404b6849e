"""Heads, bodies and metrics, read from any bytes."""

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.probing.answers import (
    MAX_BODY,
    MAX_CHUNKS,
    MAX_HEAD,
    MAX_SERIES,
    NotUnderstood,
    lines_of,
    metric_sum,
    read_body,
    read_head,
)

ANSWERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nqueue 12\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length:9\r\n\r\nqueue 12\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5;x=y\r\nqueue\r\n4\r\n 12\n\r\n0\r\n\r\n",
    b"HTTP/1.0 200\nServer: old\n\nqueue 12\n",
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_answer_is_incomplete_up_to_its_last_byte(answer: bytes) -> None:
    for size in range(len(answer)):
        head = read_head(answer[:size])
        if head is not None:
            assert head.status == 200
            assert read_body(answer[:size], head, ended=False) is None
    head = read_head(answer)
    assert head is not None
    assert read_body(answer, head, ended=True) == b"queue 12\n"


@given(st.binary(max_size=300))
def test_any_bytes_are_a_head_or_none_or_not_understood(received: bytes) -> None:
    for prefix in (b"", b"HTTP/1.1 200 OK\r\n"):
        with suppress(NotUnderstood):
            head = read_head(prefix + received)
            if head is not None:
                assert read_body(prefix + received, head, ended=True) is not None


@pytest.mark.parametrize(
    "received",
    [
        b"SSH-2.0",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + MAX_HEAD * b"x",
        20 * b"HTTP/1.1 103 Early Hints\r\n\r\n",
    ],
)
def test_head_that_is_none_is_not_waited_for(received: bytes) -> None:
    with pytest.raises(NotUnderstood):
        read_head(received)


@pytest.mark.parametrize(
    ("body", "ended"),
    [
        (b"Content-Length: 10\r\n\r\n123456789", True),
        (b"Content-Length: 99999999\r\n\r\n", False),
        (b"\r\n" + (MAX_BODY + 1) * b"x", False),
        (b"Transfer-Encoding: chunked\r\n\r\nzz\r\n0\r\n\r\n", False),
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc", True),
        (b"Transfer-Encoding: chunked\r\n\r\n" + MAX_CHUNKS * b"1\r\na\r\n" + b"0\r\n\r\n", False),
    ],
)
def test_body_that_is_cut_off_or_too_long_is_none(body: bytes, ended: bool) -> None:
    received = b"HTTP/1.1 200 OK\r\n" + body
    head = read_head(received)
    assert head is not None
    with pytest.raises(NotUnderstood):
        read_body(received, head, ended=ended)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"load 1", 1.0),
        (b"# TYPE load gauge\nload 1.5\nload_total 7\nload:rate 7\nxload 7\n", 1.5),
        (b'load{a="x"} 1\nload{a="y",} 2\nother{b="load 5"} 9\n', 3.0),
        (b'load{a="quote \\" brace } end"} 4 1700000000123\n', 4.0),
        (b'\tload\t{ a="x" }\t2e1\t\r\nload -5\r\n', 15.0),
        (b"", None),
        (b"other 1\n", None),
        (b"load NaN\n", None),
        (b"load 1\nload +Inf\n", None),
        (b"load 1\nload\n", None),
        (b"load 1\nload many\n", None),
        (b'load 1\nload{a="x 2\n', None),
        (b"load 1 2 3 4\n", None),
        (b"load 1e308\nload 1e308\n", None),
        (b"load \xff\n", None),
        ((MAX_SERIES + 1) * b"load 1\n", None),
    ],
)
def test_metric_is_the_sum_of_its_series(body: bytes, value: float | None) -> None:
    assert metric_sum(body, lines_of("load")) == value


@pytest.mark.parametrize(
    "body",
    [
        b"a" * MAX_BODY,
        b" " * MAX_BODY,
        b"a 1\n" * (MAX_BODY // 4),
        b"a{" + b'x="\\' * (MAX_BODY // 4),
        b"a{" + b'x="y",' * (MAX_BODY // 6) + b"} 1",
        b"a" + b" 1" * (MAX_BODY // 2),
        b"\n" * MAX_BODY,
        b"a" + b" " * MAX_BODY + b"x",
        b"a{" + b" " * MAX_BODY + b"} 1 2 3",
        b"HTTP" + b"\t" * MAX_BODY + b"a",
    ],
)
def test_time_for_a_body_has_a_bound(body: bytes) -> None:
    began_s = time.process_time()
    metric_sum(body, lines_of("a"))
    assert time.process_time() - began_s < 0.2
