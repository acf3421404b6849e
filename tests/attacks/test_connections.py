"""Connections that are opened and not used, or not read from: they end by themselves."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

from tests.attacks.target import MALLORYS_ADDRESS, Target
from tests.bad_requests import BAD_HEADS

from muster.app.http_connection import HEAD_TIMEOUT_S
from muster.app.http_connections import MAX_OF_ONE_ADDRESS


@contextlib.contextmanager
def connected(target: Target, count: int) -> Iterator[list[socket.socket]]:
    """Plain connections from the attackers' address."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                socket.create_connection(
                    ("127.0.0.1", target.cluster.port), 30.0, (MALLORYS_ADDRESS, 0)
                )
            )
            for _ in range(count)
        ]


def has_ended(connection: socket.socket) -> bool:
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def test_headers_that_do_not_come_end_the_connection(target: Target) -> None:
    with connected(target, 200) as connections:
        began_s = time.monotonic()
        slow = connections[::2]  # the others say nothing
        for connection in slow:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\nX: ")
        for drop in range(8):  # a byte a second keeps nothing open
            time.sleep(1.0)
            for connection in slow:
                with contextlib.suppress(OSError):
                    connection.sendall(b"%d" % drop)
        assert all(has_ended(connection) for connection in connections)
        assert time.monotonic() - began_s < HEAD_TIMEOUT_S + 10.0


def test_connections_too_many_take_the_place_of_their_own_oldest(target: Target) -> None:
    with connected(target, MAX_OF_ONE_ADDRESS + 50) as connections:
        assert all(has_ended(connection) for connection in connections[:50])
        newest = connections[-1]
        newest.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert newest.recv(100).startswith(b"HTTP/1.1 200")


def test_head_without_end_is_refused(target: Target) -> None:
    with connected(target, 1) as (connection,):
        with contextlib.suppress(OSError):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000)
        assert has_ended(connection)


def test_request_that_two_servers_might_read_in_two_ways_is_refused(target: Target) -> None:
    """The submission that hides behind it is not carried out."""
    token = target.tokens["victor"]
    body = '{"name": "smuggled", "command": ["true"]}'
    hidden = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    )
    for head, status in BAD_HEADS:
        with connected(target, 1) as (connection,):
            connection.sendall((head + hidden).encode("latin-1"))
            assert connection.recv(100).startswith(b"HTTP/1.1 %d" % status), head
            assert has_ended(connection)
    with target.client("victor") as victor:
        assert victor.jobs("all", name="smuggled") == []


def test_stranger_is_told_so_and_its_body_is_not_read(target: Target) -> None:
    with connected(target, 1) as (connection,):
        head = b"POST /v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n"
        connection.sendall(head)
        assert connection.recv(100).startswith(b"HTTP/1.1 401")
        with contextlib.suppress(OSError):
            for _ in range(1000):
                connection.sendall(b" " * 65_536)
        assert has_ended(connection)


def test_answers_that_nobody_reads_delay_nobody_else(target: Target) -> None:
    token = target.tokens["victor"].encode()
    request = (
        b"GET /v1/openapi.json HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + token + b"\r\n\r\n"
    )

    def ask(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.settimeout(3.0)
            connection.sendall(request * 200)

    with connected(target, 50) as connections:
        threads = [threading.Thread(target=ask, args=(each,), daemon=True) for each in connections]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def test_garbage_is_not_logged_each_time(target: Target) -> None:
    log = target.cluster.home.log
    before = log.stat().st_size
    with connected(target, 300) as connections:
        for connection in connections:
            connection.sendall(b"\x16\x03\x01 garbage\r\n\r\n")
        assert all(has_ended(connection) for connection in connections)
    assert log.stat().st_size - before < 2_000
