"""An API server of Kubernetes for tests: a cluster over HTTP, with faults on demand."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.providers.kubernetes_cluster import Cluster, Fault, Key
from tests.providers.kubernetes_rules import Object, Refusal

BEARER = "a-bearer-token"
_TICK_S = 0.02
_HANG_S = 30.0
_VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "GET": "get"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    cluster: Cluster

    def do_GET(self) -> None:
        self._handle()

    do_POST = do_PATCH = do_DELETE = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _handle(self) -> None:
        with suppress(ConnectionError):
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            self.cluster.requests.append(f"{self.command} {self.path}")
            try:
                self._answer(json.loads(body) if body else {})
            except Refusal as refusal:
                self._send(refusal.code, refusal.status())

    def _answer(self, sent: Object) -> None:
        url = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        parts = url.path.strip("/").split("/")
        if parts[:3] != ["api", "v1", "namespaces"] or not 5 <= len(parts) <= 6:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        namespace, kind, name = parts[3], parts[4], (parts[5] if len(parts) == 6 else "")
        verb = "list" if self.command == "GET" and not name else _VERBS[self.command]
        self._authorize(verb, kind, namespace, name)
        fault = self.cluster.take_fault(verb, kind)
        if fault is not None and not self._before(fault, sent):
            return
        if query.get("watch") == "true":
            return self._stream(self.cluster.watch(kind, namespace, query))
        answer = self._carry_out(verb, (kind, namespace, name), query, sent)
        self._send(201 if verb == "create" else 200, answer, fault)

    def _authorize(self, verb: str, kind: str, namespace: str, name: str) -> None:
        if self.headers.get("Authorization") != f"Bearer {BEARER}":
            raise Refusal(401, "Unauthorized", "Unauthorized")
        if (verb, kind) in self.cluster.denied:
            about = f'{kind} "{name}"' if name else kind
            user = 'User "system:serviceaccount:work:muster"'
            message = (
                f'{about} is forbidden: {user} cannot {verb} resource "{kind}" in API group ""'
            )
            raise Refusal(403, "Forbidden", f'{message} in the namespace "{namespace}"', name)

    def _before(self, fault: Fault, sent: Object) -> bool:
        """Do what a fault does instead of an answer; whether the request is carried out."""
        match fault:
            case Fault.THROTTLED:
                raise Refusal(429, "TooManyRequests", "too many requests, please try again later")
            case Fault.ERROR:
                raise Refusal(500, "InternalError", "etcdserver: leader changed")
            case Fault.EXPIRED:
                raise Refusal(410, "Expired", "The provided continue parameter is too old")
            case Fault.FORBIDDEN:
                raise Refusal(403, "Forbidden", "no reason")
            case Fault.CONFLICT:
                message = (
                    'Operation cannot be fulfilled on resourcequotas "compute": the object has'
                )
                raise Refusal(409, "Conflict", f"{message} been modified", "compute")
            case Fault.RECOUNTED:
                name = sent["metadata"]["name"]
                message = f'pods "{name}" is forbidden: status unknown for quota: compute'
                raise Refusal(403, "Forbidden", message, name)
            case Fault.ECHO:
                raise Refusal(422, "Invalid", f"not wanted: {json.dumps(sent)}")
            case Fault.NONSENSE:
                self._send_bytes(200, b"<html>a gateway</html>")
                return False
            case Fault.HANG:
                until = time.monotonic() + _HANG_S
                while not self.cluster.closed and time.monotonic() < until:
                    time.sleep(_TICK_S)
                self.close_connection = True
                return False
        return True

    def _carry_out(self, verb: str, key: Key, query: dict[str, str], sent: Object) -> Object:
        cluster, dry_run = self.cluster, query.get("dryRun") == "All"
        match verb:
            case "create":
                return cluster.create(*key[:2], sent, dry_run=dry_run)
            case "patch":
                assert self.headers["Content-Type"] == "application/merge-patch+json"
                return cluster.patch(*key, sent, dry_run=dry_run)
            case "delete":
                grace = query.get("gracePeriodSeconds")
                cluster.delete(*key, None if grace is None else int(grace), dry_run=dry_run)
                return {"kind": "Status", "apiVersion": "v1", "status": "Success"}
            case "list":
                return cluster.list(*key[:2], query)
        return cluster.get(*key)

    def _send(self, code: int, answer: Object, fault: Fault | None = None) -> None:
        body = json.dumps(answer).encode()
        match fault:
            case Fault.LOST:
                self.close_connection = True
            case Fault.TRUNCATED:
                self._send_bytes(code, body[: len(body) // 2], len(body))
                self.close_connection = True
            case Fault.DRIP:
                self._send_bytes(code, b"", len(body))
                for each in body:
                    if self.cluster.closed:
                        break
                    self.wfile.write(bytes([each]))
                    time.sleep(0.1)
                self.close_connection = True
            case _:
                self._send_bytes(code, body)

    def _send_bytes(self, code: int, body: bytes, length: int | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body) if length is None else length))
        if code == 429:
            self.send_header("Retry-After", self.cluster.retry_after)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, changes: Iterator[Object]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for change in changes:
            line = json.dumps(change).encode() + b"\n"
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")


@contextmanager
def serving(cluster: Cluster) -> Iterator[str]:
    """The URL at which a cluster is served."""
    handler = type("_ClusterHandler", (_Handler,), {"cluster": cluster})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    serving_thread = threading.Thread(target=server.serve_forever, args=(_TICK_S,))
    nodes = threading.Thread(target=_play_nodes, args=(cluster,))
    serving_thread.start()
    nodes.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        cluster.closed = True
        server.shutdown()
        server.server_close()
        serving_thread.join()
        nodes.join()


def _play_nodes(cluster: Cluster) -> None:
    while not cluster.closed:
        cluster.settle()
        time.sleep(_TICK_S)
