"""A certificate authority of a test, and servers with its certificates."""

import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from muster.app.home import Home
from muster.app.own_authority import own_certificate
from muster.wire.transport import ServerTls

LIMIT_S = 20.0


def certificate(directory: Path, *names: str, age: timedelta = timedelta()) -> ServerTls:
    """For this machine and these names, by an authority in ``directory/ca.pem``."""
    home = Home(directory)
    home.create()
    return own_certificate(home, names, datetime.now(UTC) - age)


@contextmanager
def served(
    body: bytes = b'{"status": "ok", "version": "1"}',
    tls: ServerTls | None = None,
    host: str = "127.0.0.1",
) -> Iterator[int]:
    """The port of a server that answers every GET and POST with this."""

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 5

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass  # clients that go away are what is tested

    with Server((host, 0), Handler) as server:
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls.certificate, tls.key)
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join(LIMIT_S)
