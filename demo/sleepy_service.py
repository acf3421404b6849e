"""A service whose answers take a while, as those of a model on a GPU do."""

import http.server
import os
import time

WORK_S = 0.5


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        time.sleep(WORK_S)
        self._answer()

    def log_message(self, *_: object) -> None:
        """Say nothing: a line for each request would be all that its log has."""

    def _answer(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"done")


if __name__ == "__main__":
    address = "127.0.0.1", int(os.environ["PORT"])
    http.server.ThreadingHTTPServer(address, Handler).serve_forever()
