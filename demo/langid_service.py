"""A service that tells the language of a text, by the model that comes with py3langid.

It answers a POST with the language's code, and a GET with 200 once the model is loaded.
"""

import os
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import py3langid

LONGEST_BYTES = 64 * 1024
LISTEN = "127.0.0.1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet for head and body
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer(HTTPStatus.OK, "ready")

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        if not 0 <= length <= LONGEST_BYTES:
            self.close_connection = True
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too long")
            return
        language, _ = py3langid.classify(self.rfile.read(length).decode(errors="replace"))
        self._answer(HTTPStatus.OK, language)

    def log_message(self, *_: object) -> None:
        """Say nothing: a line for each request would be all that its log has."""

    def _answer(self, status: HTTPStatus, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


class Server(ThreadingHTTPServer):
    request_queue_size = 128


if __name__ == "__main__":
    py3langid.classify("The first text has the model loaded.")
    Server((LISTEN, int(os.environ["PORT"])), Handler).serve_forever()
