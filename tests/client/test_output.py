"""Reading one attempt after another, when the output of some of them cannot be had."""

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from muster.client.errors import AgentUnreachable
from muster.client.exchange import Answer, Exchange, Give, Read, Request
from muster.client.output import read_output
from muster.core.errors import Conflict
from muster.core.views.work import LOG_ATTEMPT_HEADER, LOG_END_HEADER, LOG_OFFSET_HEADER


class Attempts:
    """A task whose attempts wrote this; None is on a machine that does not answer. A request that
    follows waits for the ``later`` one too."""

    def __init__(self, *written: bytes | None, later: bytes | None = None) -> None:
        self._written = written
        self._later = later
        self._left = b""

    def ask(self, request: Request, _patience_s: float) -> Exchange[Answer]:
        yield from ()
        query = parse_qs(urlsplit(request.path).query)
        (attempt,) = map(int, query["attempt"])
        if self._later is not None and query.get("follow") == ["true"]:
            self._written, self._later = (*self._written, self._later), None
        if attempt > len(self._written):
            raise Conflict("it has not started")
        data = self._written[attempt - 1]
        if data is None:
            raise AgentUnreachable(f"the agent of attempt {attempt} is not connected")
        self._left = data
        end = "all" if attempt == len(self._written) else "attempt"
        headers = {LOG_ATTEMPT_HEADER: str(attempt), LOG_OFFSET_HEADER: "0", LOG_END_HEADER: end}
        return Answer(200, {name.lower(): value for name, value in headers.items()}, b"")

    def read(self) -> Iterator[bytes]:
        """The pieces of output that a client gives."""
        steps = read_output(
            self.ask, "/", {"task": 0}, attempt=1, tail_bytes=None, follow=True, retries=True
        )
        try:
            step = next(steps)
            while True:
                match step:
                    case Give(value):
                        yield value
                        step = next(steps)
                    case Read():
                        data, self._left = self._left, b""
                        step = steps.send(data)
                    case _:
                        raise AssertionError(step)
        except StopIteration:
            return


class Kept:
    """A task's output of which the first bytes were rotated away; while it is followed, more
    comes."""

    def __init__(self, data: bytes, *, lost: int = 0, later: bytes = b"") -> None:
        self.data, self.lost, self.later = data, lost, later
        self.gone: list[int] = []

    def ask(self, request: Request, _patience_s: float) -> Exchange[Answer]:
        yield from ()
        query = {key: each[0] for key, each in parse_qs(urlsplit(request.path).query).items()}
        tail = int(query.get("tail_bytes", 0))
        offset = len(self.data) - tail if tail else int(query["offset"])
        offset = max(offset, self.lost)
        self.left = self.data[offset:] + (self.later if query["follow"] == "true" else b"")
        headers = {LOG_ATTEMPT_HEADER: "1", LOG_OFFSET_HEADER: str(offset), LOG_END_HEADER: "all"}
        return Answer(200, {name.lower(): value for name, value in headers.items()}, b"")

    def read(self, tail_bytes: int, *, follow: bool = False) -> bytes:
        steps = read_output(
            self.ask,
            "/",
            {},
            attempt=None,
            tail_bytes=tail_bytes,
            follow=follow,
            retries=False,
            on_cut=self.gone.append,
        )
        given = b""
        step = next(steps, None)
        while step is not None:
            piece = b""
            if isinstance(step, Give):
                given += step.value
            else:
                piece, self.left = self.left[:3], self.left[3:]
            try:
                step = steps.send(piece if isinstance(step, Read) else None)
            except StopIteration:
                step = None
        return given


def test_end_that_is_longer_than_what_is_kept_tells_how_much_is_gone() -> None:
    output = Kept(b"0123456789", lost=6)
    assert (output.read(3), output.gone) == (b"789", [])
    assert (output.read(4), output.gone) == (b"6789", [])
    assert (output.read(5), output.gone) == (b"6789", [6])


def test_end_of_no_bytes_is_what_is_written_from_now_on() -> None:
    assert Kept(b"old", later=b"new").read(0, follow=True) == b"new"
    assert Kept(b"old").read(0) == b""
    assert Kept(b"", later=b"new").read(0, follow=True) == b"new"


def read(*written: bytes | None) -> Iterator[bytes]:
    return Attempts(*written).read()


def test_attempts_are_read_in_their_order() -> None:
    assert list(read(b"one", b"two", b"three")) == [b"one", b"two", b"three"]


def test_attempt_that_cannot_be_read_is_told_after_those_that_can() -> None:
    pieces = read(b"one", None, None, b"four")
    assert [next(pieces), next(pieces)] == [b"one", b"four"]
    with pytest.raises(AgentUnreachable, match="attempt 2"):
        next(pieces)


def test_attempt_that_begins_after_one_that_cannot_be_read_is_shown() -> None:
    """The agent of the first attempt was away for a moment: the next one is waited for."""
    pieces = Attempts(None, later=b"two").read()
    assert next(pieces) == b"two"
    with pytest.raises(AgentUnreachable, match="attempt 1"):
        next(pieces)


def test_last_attempt_that_cannot_be_read_is_told() -> None:
    pieces = read(b"one", None)
    assert next(pieces) == b"one"
    with pytest.raises(AgentUnreachable, match="attempt 2"):
        next(pieces)
