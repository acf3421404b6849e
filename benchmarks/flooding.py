"""``python -m benchmarks.flooding``: send one request again and again over many connections, each
as soon as the last answer begins. Reads a ``Flood`` as JSON from standard input."""

import json
import selectors
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

READ_BYTES = 1 << 20
LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Flood:
    """One request, its sender's token, and how long and over how many connections it is sent."""

    url: str
    token: str
    method: str
    path: str
    body: Mapping[str, Any] | None
    seconds: float
    connections: int

    def dump(self) -> str:
        return json.dumps(asdict(self))

    def request(self) -> bytes:
        body = b"" if self.body is None else json.dumps(self.body).encode()
        head = (
            f"{self.method} {self.path} HTTP/1.1\r\nHost: flood\r\n"
            f"Authorization: Bearer {self.token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def send(flood: Flood) -> int:
    """Send the requests; the answer is how many were answered. A connection that the server closes
    is opened again."""
    address = urlsplit(flood.url)
    host, port, request = address.hostname or "", address.port or 0, flood.request()
    end_s, answered = time.monotonic() + flood.seconds, 0

    def opened() -> socket.socket:
        connection = socket.create_connection((host, port), timeout=flood.seconds)
        connection.sendall(request)
        return connection

    with selectors.DefaultSelector() as chosen:
        for _ in range(flood.connections):
            chosen.register(opened(), selectors.EVENT_READ)
        while time.monotonic() < end_s:
            for key, _ in chosen.select(LOOK_S):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                piece = connection.recv(READ_BYTES)
                if not piece:
                    chosen.unregister(connection)
                    connection.close()
                    chosen.register(opened(), selectors.EVENT_READ)
                elif piece.startswith(b"HTTP/1.1"):
                    answered += 1
                    connection.sendall(request)
        for key in [*chosen.get_map().values()]:
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
    return answered


if __name__ == "__main__":
    sys.stdout.write(f"{send(Flood(**json.load(sys.stdin)))}\n")
