"""HTTP/1.1 over one connection: what servers may answer, and what no server may make of it."""

import socket
from collections.abc import Iterator

import pytest

from muster.client.http1 import HttpError, Link, NoStatusLine, Place, Response

LIMIT_S = 5.0


class Wire:
    """A link whose other end is written and read here."""

    def __init__(self) -> None:
        mine, self.server = socket.socketpair()
        mine.settimeout(LIMIT_S)
        self.server.settimeout(LIMIT_S)
        self.link = Link(Place("127.0.0.1", 7600))
        self.link.sock = mine

    def answer(self, sent: str, *, ends: bool = False) -> Response:
        """The answer to a request, of which the server sends this text."""
        self.server.sendall(sent.encode("latin-1"))
        if ends:
            self.server.shutdown(socket.SHUT_WR)
        return self.link.ask("GET", "/", None, {})

    def close(self) -> None:
        self.link.close()
        self.server.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    made = Wire()
    yield made
    made.close()


def content(response: Response) -> bytes:
    return b"".join(iter(lambda: response.read1(4), b""))


def test_request_is_written_as_one(wire: Wire) -> None:
    wire.server.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
    wire.link.ask("POST", "/v1/jobs?a=%20", b"{}", {"Authorization": "Bearer t"}).close()
    assert wire.server.recv(1000) == (
        b"POST /v1/jobs?a=%20 HTTP/1.1\r\nHost: 127.0.0.1:7600\r\nAccept-Encoding: identity\r\n"
        b"Content-Length: 2\r\nAuthorization: Bearer t\r\n\r\n{}"
    )


@pytest.mark.parametrize(
    ("place", "host"),
    [
        (Place("muster.example", 80), "muster.example"),
        (Place("muster.example", 8080), "muster.example:8080"),
        (Place("::1", 7600), "[::1]:7600"),
        (Place("::1", 80), "[::1]"),
    ],
)
def test_host_is_named_with_its_port_unless_that_is_the_usual_one(place: Place, host: str) -> None:
    assert place.authority(80) == host


def test_content_of_a_known_length_leaves_the_connection_for_the_next_request(wire: Wire) -> None:
    response = wire.answer(
        "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nMuster-Log-End: all\r\n\r\nabcdef"
    )
    assert (response.status, response.phrase) == (200, "OK")
    assert response.headers["muster-log-end"] == "all"
    assert content(response) == b"abcdef"
    assert response.ended
    assert not response.closes
    assert content(wire.answer("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno")) == b"no"


def test_content_in_chunks_is_read_to_the_last(wire: Wire) -> None:
    response = wire.answer(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
        "3\r\nabc\r\nA;x=y\r\ndefghijklm\r\n0\r\nTrailer: t\r\n\r\n"
    )
    assert content(response) == b"abcdefghijklm"
    assert not response.closes
    assert content(wire.answer("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")) == b"x"


def test_content_may_end_with_the_connection(wire: Wire) -> None:
    response = wire.answer("HTTP/1.1 200 OK\r\n\r\nabcdef", ends=True)
    assert response.closes
    assert content(response) == b"abcdef"


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_answer_of_no_content_has_none(wire: Wire, status: str) -> None:
    response = wire.answer(f"HTTP/1.1 {status}\r\n\r\n")
    assert content(response) == b""
    assert not response.closes


@pytest.mark.parametrize(
    ("head", "closes"),
    [
        ("HTTP/1.1 200 OK\r\nConnection: Close\r\n", True),
        ("HTTP/1.0 200 OK\r\n", True),
        ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", False),
    ],
)
def test_server_says_whether_it_keeps_the_connection(wire: Wire, head: str, closes: bool) -> None:
    assert wire.answer(f"{head}Content-Length: 0\r\n\r\n").closes is closes


def test_interim_answers_are_passed_over(wire: Wire) -> None:
    response = wire.answer(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
    )
    assert (response.status, content(response)) == (200, b"x")
    assert "link" not in response.headers


@pytest.mark.parametrize("head", ["Content-Length: 9", "Transfer-Encoding: chunked"])
def test_content_that_ends_early_is_known_to(wire: Wire, head: str) -> None:
    response = wire.answer(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n9\r\nabc", ends=True)
    if "chunked" in head:
        with pytest.raises(HttpError):
            content(response)
    else:
        assert content(response) == b"9\r\nabc"
        assert response.length == 3


@pytest.mark.parametrize("size", ["", "x", "-1", "+1", "1_0"])
def test_size_of_a_chunk_that_is_no_number_is_refused(wire: Wire, size: str) -> None:
    response = wire.answer(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{size}\r\nabc")
    with pytest.raises(HttpError):
        response.read1(10)


@pytest.mark.parametrize(
    "line", ["\x15\x03\x01\x00\x02", "SSH-2.0-OpenSSH", "HTTP/1.1 OK", "HTTP/2 200"]
)
def test_what_is_no_answer_is_told(wire: Wire, line: str) -> None:
    with pytest.raises(NoStatusLine):
        wire.answer(f"{line}\r\n\r\n")


def test_connection_that_ends_before_an_answer_is_told(wire: Wire) -> None:
    with pytest.raises(ConnectionResetError, match="closed connection without response"):
        wire.answer("", ends=True)


@pytest.mark.parametrize(
    "sent", [f"HTTP/1.1 200 {'x' * 70_000}\r\n", "HTTP/1.1 200 OK\r\n" + "A: b\r\n" * 200]
)
def test_answer_without_an_end_fills_no_memory(wire: Wire, sent: str) -> None:
    wire.server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200_000)
    with pytest.raises(HttpError):
        wire.answer(sent)


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/a b", {}), ("/a\r\nX: y", {}), ("/ä", {}), ("/", {"Authorization": "t\r\nX: y"})],
)
def test_request_that_would_be_read_as_another_is_not_sent(
    wire: Wire, path: str, headers: dict[str, str]
) -> None:
    with pytest.raises(HttpError):
        wire.link.ask("GET", path, None, headers)
    wire.server.setblocking(False)
    with pytest.raises(BlockingIOError):
        wire.server.recv(1)
