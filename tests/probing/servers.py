"""Servers on this machine that behave badly, and one that does not."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass(slots=True)
class Talk:
    """A server's talk with one client.

    Attributes:
        over: is set when the server ends.
        sent: bytes that were sent to all clients.
    """

    connection: socket.socket
    server: "Server"

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)
        self.server.sent += len(data)

    def request(self) -> bytes:
        """The head of the client's request, and what came with it."""
        received = b""
        while b"\r\n\r\n" not in received and (data := self.connection.recv(65536)):
            received += data
        self.server.requests.append(received)
        return received

    def wait(self, seconds: float) -> bool:
        """Wait; whether the server ends."""
        return self.server.over.wait(seconds)


@dataclass(slots=True)
class Server:
    """A server, and what became of it."""

    port: int
    behave: Callable[[Talk], None]
    over: threading.Event = field(default_factory=threading.Event)
    requests: list[bytes] = field(default_factory=list)
    accepted: int = 0
    sent: int = 0


@contextmanager
def serving(behave: Callable[[Talk], None], host: str = "127.0.0.1") -> Iterator[Server]:
    """A server that talks to each client on a thread of its own."""
    listening = socket.create_server((host, 0), backlog=512)
    server = Server(listening.getsockname()[1], behave)

    def talk(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            server.behave(Talk(connection, server))

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                connection.settimeout(20)
                server.accepted += 1
                talks.append(threading.Thread(target=talk, args=(connection,), daemon=True))
                talks[-1].start()

    talks: list[threading.Thread] = []
    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield server
    finally:
        server.over.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for thread in (accepting, *talks):
            thread.join(20)


def answering(answer: bytes) -> Callable[[Talk], None]:
    """The behaviour of a server that answers each request so."""

    def behave(talk: Talk) -> None:
        talk.request()
        talk.send(answer)

    return behave


def hang(talk: Talk) -> None:
    talk.request()
    talk.wait(20)


def close_at_once(talk: Talk) -> None:
    pass


def answer_100_mb(talk: Talk) -> None:
    talk.request()
    talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
    for _ in range(100):
        talk.send(bytes(1_000_000))


def send_a_byte_a_second(talk: Talk) -> None:
    for byte in OK:
        talk.send(bytes([byte]))
        if talk.wait(1.0):
            break


def send_headers_for_ever(talk: Talk) -> None:
    talk.request()
    talk.send(b"HTTP/1.1 200 OK\r\n")
    while not talk.server.over.is_set():
        talk.send(b"X-Header: " + 1000 * b"x" + b"\r\n")


def send_informational_for_ever(talk: Talk) -> None:
    talk.request()
    while not talk.server.over.is_set():
        talk.send(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n")


def redirect_for_ever(talk: Talk) -> None:
    path = talk.request().partition(b" ")[2].partition(b" ")[0]
    port = talk.server.port
    talk.send(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:%d%s/on\r\n\r\n" % (port, path))


def closed_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
