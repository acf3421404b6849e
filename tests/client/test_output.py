"""Reading one attempt after another, when the output of some of them cannot be had."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import httpx
import pytest

from muster.client.errors import AgentUnreachable
from muster.client.output import read_output
from muster.client.transport import Transport
from muster.core.errors import Conflict
from muster.core.views import LOG_ATTEMPT_HEADER, LOG_END_HEADER, LOG_OFFSET_HEADER


class Attempts:
    """A task whose attempts wrote this; None is on a machine that does not answer."""

    def __init__(self, *written: bytes | None) -> None:
        self._written = written

    @contextmanager
    def stream(self, path: str, params: Mapping[str, Any], **_: Any) -> Iterator[httpx.Response]:
        attempt = params["attempt"]
        if attempt > len(self._written):
            raise Conflict("it has not started")
        data = self._written[attempt - 1]
        if data is None:
            raise AgentUnreachable(f"the agent of attempt {attempt} is not connected")
        end = "all" if attempt == len(self._written) else "attempt"
        headers = {LOG_ATTEMPT_HEADER: str(attempt), LOG_OFFSET_HEADER: "0", LOG_END_HEADER: end}
        yield httpx.Response(200, headers=headers, content=data)


def read(*written: bytes | None) -> Iterator[bytes]:
    transport = cast(Transport, Attempts(*written))
    return read_output(
        transport, "/", {"task": 0}, attempt=1, tail_bytes=None, follow=True, retries=True
    )


def test_attempts_are_read_in_their_order() -> None:
    assert list(read(b"one", b"two", b"three")) == [b"one", b"two", b"three"]


def test_attempt_that_cannot_be_read_is_told_after_those_that_can() -> None:
    pieces = read(b"one", None, None, b"four")
    assert [next(pieces), next(pieces)] == [b"one", b"four"]
    with pytest.raises(AgentUnreachable, match="attempt 2"):
        next(pieces)


def test_last_attempt_that_cannot_be_read_is_told_at_once() -> None:
    pieces = read(b"one", None)
    assert next(pieces) == b"one"
    with pytest.raises(AgentUnreachable, match="attempt 2"):
        next(pieces)
