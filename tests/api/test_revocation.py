"""A token that is revoked, or has ended, opens nothing from that moment on: also what is open."""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send
from tests.api.served import ADA, ADMIN, LARGE, LIMIT_S, ROOT, ServedCluster

from muster.api.auth import BearerAuth
from muster.api.turns import Caller, RequestTurn, TurnsAtOnce
from muster.client import Client, Unauthenticated
from muster.control.identity.tokens import revoke_token
from muster.core.owner import Role

SLEEP = {"command": ["sleep", "1000"], "resources": {"cpu": "10m"}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    cluster = ServedCluster(tmp_path_factory.mktemp("revocation"), {"a1": LARGE})
    cluster.start()
    yield cluster
    cluster.stop()


def in_background(read: Callable[[], Any]) -> "Future[Any]":
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(read())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


Reading = Callable[[Client, str], Any]
READINGS: dict[str, Reading] = {
    "events": lambda client, _: [*client.events()],
    "logs": lambda client, job: [*client.logs(job, follow=True)],
    "logs of what has not started": lambda client, _: [*client.logs("waits", follow=True)],
    "wait": lambda client, job: client.wait(job),
}


@pytest.fixture
def job(cluster: ServedCluster) -> Iterator[str]:
    """A job of Ada's that runs, and one, ``waits``, that does not."""
    with cluster.client(ADA) as ada:
        running = ada.submit(SLEEP)
        ada.submit({**SLEEP, "name": "waits", "after": [{"on": running.id}]})
        yield running.id
        ada.cancel("waits")
        ada.cancel(running.id)


ENDS = [(name, how) for name in READINGS for how in ("revoked", "expired")]


@pytest.mark.parametrize(("name", "how"), [*ENDS, ("events", "user removed")])
def test_open_request_ends_with_its_token_and_the_client_says_so(
    cluster: ServedCluster, root: Client, job: str, name: str, how: str
) -> None:
    if how == "user removed":
        root.add_user("temp")
        made = root.create_token(user="temp")
    else:
        made = root.create_token(user="ada", expires=0.5 if how == "expired" else None)
    with Client(cluster.url, made.secret) as reader:
        before = cluster.call(cluster.requests_under_way)
        reading = in_background(lambda: READINGS[name](reader, job))
        cluster.until(lambda: cluster.requests_under_way() > before or reading.done())
        assert not reading.done()
        if how == "revoked":
            root.revoke_token(made.token.id)
        elif how == "expired":
            cluster.call(lambda: cluster.clock.advance(1.0))
        else:
            root.remove_user("temp")
        error = reading.exception(LIMIT_S)
        assert isinstance(error, Unauthenticated)
        assert "does not accept" in str(error)


def test_reads_of_others_go_on(cluster: ServedCluster, root: Client, job: str) -> None:
    made = root.create_token(user="ada")
    with cluster.client(ADA) as other:
        before = cluster.call(cluster.requests_under_way)
        waiting = in_background(lambda: other.wait(job))
        cluster.until(lambda: cluster.requests_under_way() > before)
        root.revoke_token(made.token.id)
        other.cancel(job)
        assert waiting.result(LIMIT_S).ended


def test_wait_is_answered_with_401_the_moment_its_token_is_revoked(
    cluster: ServedCluster, root: Client, job: str
) -> None:
    made = root.create_token(user="ada")
    url = f"{cluster.url}/v1/jobs/{job}/wait"
    headers = {"Authorization": f"Bearer {made.secret}"}
    before = cluster.call(cluster.requests_under_way)
    waiting = in_background(
        lambda: httpx.get(url, headers=headers, params={"timeout_s": 30}, timeout=60)
    )
    cluster.until(lambda: cluster.requests_under_way() > before)
    root.revoke_token(made.token.id)
    answer = waiting.result(LIMIT_S)
    assert answer.status_code == 401
    assert answer.json()["code"] == "unauthenticated"


def test_token_may_revoke_itself_and_is_told_so(cluster: ServedCluster, root: Client) -> None:
    made = root.create_token(user="ada")
    with Client(cluster.url, made.secret) as client:
        assert client.revoke_token(made.token.id).id == made.token.id
        with pytest.raises(Unauthenticated):
            client.whoami()


def test_project_that_is_taken_away_is_no_longer_seen_on_an_open_stream(
    cluster: ServedCluster, root: Client
) -> None:
    root.add_project("gone")
    root.add_user("uma", ["default", "gone"])
    made = root.create_token(user="uma")
    with Client(cluster.url, made.secret) as uma:
        kinds: list[str] = []

        def resets() -> int:
            for event in uma.events():
                kinds.append(event.kind)
                if kinds.count("reset") == 2:  # the stream ended, and was asked for anew
                    return 2
            return 0

        before = cluster.call(cluster.requests_under_way)
        reading = in_background(resets)
        cluster.until(lambda: cluster.requests_under_way() > before)
        root.set_projects("uma", ["default"])
        assert reading.result(LIMIT_S) == 2


def half_a_request(cluster: ServedCluster, secret: str, path: str, body: bytes) -> socket.socket:
    """A connection on which all of a request has been sent but the last byte of its body, which
    the controller has begun to read."""
    url = httpx.URL(cluster.url)
    connection = socket.create_connection((url.host, url.port or 80), timeout=LIMIT_S)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {url.host}\r\nAuthorization: Bearer {secret}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Expect: 100-continue\r\n\r\n"
    )
    connection.sendall(head.encode())
    assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.sendall(body[:-1])
    return connection


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/tokens", b'{"name": "kept"}'),
        ("/v1/join-tokens", b'{"agent": "mine"}'),
        ("/v1/users", b'{"name": "kept"}'),
        ("/v1/jobs", b'{"name": "kept", "command": ["true"]}'),
        ("/v1/sessions", b'{"name": "kept", "kernels": [{"command": ["true"]}]}'),
    ],
)
def test_change_whose_body_ends_after_its_token_was_revoked_is_refused(
    cluster: ServedCluster, root: Client, path: str, body: bytes
) -> None:
    made = root.create_token(user=ADMIN.user, role=Role.ADMIN)
    tokens, joins = len(root.tokens()), len(root.join_tokens())
    with half_a_request(cluster, made.secret, path, body) as connection:
        root.revoke_token(made.token.id)
        connection.sendall(body[-1:])
        assert connection.recv(1000).startswith(b"HTTP/1.1 401 ")
    assert (len(root.tokens()), len(root.join_tokens())) == (tokens - 1, joins)
    assert "kept" not in {user.name for user in root.users()}
    assert "kept" not in {job.name for job in root.jobs("all")}


def test_token_that_is_revoked_while_its_request_waits_for_a_turn_is_refused(
    cluster: ServedCluster,
) -> None:
    token, secret = cluster.new_token(ADA)
    api = cluster.app.state.api

    class Late(TurnsAtOnce):
        """A turn comes once the token is gone."""

        async def begin(self, caller: Caller) -> RequestTurn:
            await api.plane.request(lambda work, _: revoke_token(work, ROOT, token))
            return RequestTurn(caller, 0.0, in_debt=True)

    sent: list[Message] = []

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("nobody is let in")

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"authorization", f"Bearer {secret}".encode())]
    scope = {"type": "http", "method": "GET", "path": "/v1/jobs", "headers": headers}
    cluster.run(BearerAuth(endpoint, api.access, Late())(scope, receive, send))
    assert sent[0]["status"] == 401
