"""A real etcd: keys under a lease, and what becomes of them when etcd or the lease is lost."""

import base64
import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.client.authority import certificate
from tests.control.deployment.publishing.balancers import (
    Etcd,
    ask,
    coded,
    keys,
    needs_etcd,
    service,
)
from tests.patience import until

from muster.control.deployment.publishing.effects import PublishServices
from muster.control.deployment.publishing.etcd import EtcdSink
from muster.control.deployment.publishing.performer import TrafficPublisher
from muster.control.deployment.publishing.settings import EtcdSettings, TrafficSettings
from muster.control.deployment.publishing.sink import SinkError
from muster.core.serving.traffic import Target, TrafficService

pytestmark = needs_etcd
ONE = Target(route="rte-1", host="10.0.0.1", port=8000, revision=1)
TWO = Target(route="rte-2", host="fd00::2", port=8000, revision=2, weight=5)


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    made = Etcd(tmp_path)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def performer(etcd: Etcd) -> Iterator[TrafficPublisher]:
    gone = "http://127.0.0.1:9"  # a member that does not answer
    settings = EtcdSettings.model_validate({"endpoints": [gone, etcd.url], "lease": 5})
    made = TrafficPublisher(TrafficSettings(etcd=settings), lambda _: None)
    yield made
    made.close()


def publish(performer: TrafficPublisher, version: int, *services: TrafficService) -> None:
    performer.perform([PublishServices(version, services)])


def test_replicas_are_keys_that_change_and_go_and_come_back_after_an_outage(
    etcd: Etcd, performer: TrafficPublisher
) -> None:
    publish(performer, 2, service("chat", ONE, TWO), service("private", ONE, public=False))
    one = {"address": "10.0.0.1:8000", "weight": 1, "revision": 1}
    two = {"address": "[fd00::2]:8000", "weight": 5, "revision": 2}
    both = {"/muster/routes/chat/rte-1": one, "/muster/routes/chat/rte-2": two}
    until(lambda: keys(etcd) == both)
    publish(performer, 1)  # late: it is older
    publish(performer, 3, service("chat", TWO))
    until(lambda: list(keys(etcd)) == ["/muster/routes/chat/rte-2"])
    etcd.kill()
    publish(performer, 4, service("chat", ONE, TWO))
    etcd.start()
    until(lambda: keys(etcd) == both)
    ask(etcd, "kv/put", key=coded("/muster/routes/x/y"), value=coded("{}"))
    ask(etcd, "kv/put", key=coded("/muster/other"), value=coded("1"))
    [lease] = ask(etcd, "lease/leases")["leases"][-1:]
    ask(etcd, "lease/revoke", ID=lease["ID"])  # as if the controller was not heard for long
    until(lambda: keys(etcd) == both | {"/muster/other": 1})


def test_keys_outlast_the_controller_by_their_lease_alone(
    etcd: Etcd, performer: TrafficPublisher
) -> None:
    many = [
        Target(route=f"rte-{number}", host="10.0.0.1", port=8000, revision=1)
        for number in range(250)
    ]
    publish(performer, 1, service("chat", *many))
    until(lambda: len(keys(etcd)) == 250)
    performer.close()
    assert len(keys(etcd)) == 250
    until(lambda: keys(etcd) == {})


def test_lease_that_is_gone_is_made_anew_long_before_it_would_be_renewed(etcd: Etcd) -> None:
    settings = EtcdSettings.model_validate({"endpoints": [etcd.url], "lease": 3600})
    performer = TrafficPublisher(TrafficSettings(etcd=settings), lambda _: None)
    try:
        publish(performer, 1, service("chat", ONE))
        until(lambda: len(keys(etcd)) == 1)
        (lease,) = ask(etcd, "lease/leases")["leases"]
        ask(etcd, "lease/revoke", ID=lease["ID"])
        publish(performer, 2, service("chat", ONE, TWO))
        until(lambda: len(keys(etcd)) == 2, timeout_s=15.0)
    finally:
        performer.close()


def sink_of(etcd: Etcd, lease_s: int) -> EtcdSink:
    """A sink that has published ``ONE``."""
    sink = EtcdSink(EtcdSettings.model_validate({"endpoints": [etcd.url], "lease": lease_s}))

    def is_told() -> bool:
        try:
            sink.publish([service("chat", ONE)])
        except SinkError:  # etcd begins
            return False
        return True

    until(is_told)
    return sink


def test_a_change_of_one_replica_reads_no_keys(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sink_of(etcd, 3600)
    monkeypatch.setattr(sink, "_there", lambda: pytest.fail("all keys are read"))
    sink.publish([service("chat", ONE, TWO)])
    assert len(keys(etcd)) == 2
    sink.publish([service("chat", TWO)])
    assert list(keys(etcd)) == ["/muster/routes/chat/rte-2"]
    sink.close()


def test_keys_stay_while_a_sink_rests(etcd: Etcd) -> None:
    sink = sink_of(etcd, 5)
    (lease,) = ask(etcd, "lease/leases")["leases"]

    def left_s() -> int:
        return int(ask(etcd, "lease/timetolive", ID=lease["ID"])["TTL"])

    until(lambda: left_s() < 3)
    sink.rest()
    assert left_s() >= 4
    assert list(keys(etcd)) == ["/muster/routes/chat/rte-1"]
    sink.close()


def test_an_etcd_with_a_certificate_and_passwords_takes_keys_below_the_prefix(
    tmp_path: Path,
) -> None:
    tls = certificate(tmp_path / "home")
    etcd = Etcd(tmp_path, tls)
    etcd.start()
    authority = str(tmp_path / "home" / "ca.pem")
    trusted = ssl.create_default_context(cafile=authority)
    client = httpx.Client(verify=trusted, trust_env=False, base_url=f"{etcd.url}/v3/")

    def admin(path: str, **request: Any) -> dict[str, Any]:
        answer = client.post(path, json=request)
        answer.raise_for_status()
        told: dict[str, Any] = answer.json()
        return told

    def answers() -> bool:
        try:
            return bool(admin("kv/range", key=coded("/")))
        except httpx.HTTPError:
            return False

    try:
        until(answers)
        for user, role in (("root", "root"), ("muster", "routes")):
            admin("auth/user/add", name=user, password=f"{user}'s secret")
            admin("auth/role/add", name=role)
            admin("auth/user/grant", user=user, role=role)
        below = {"key": coded("/muster/routes/"), "range_end": coded("/muster/routes0")}
        admin("auth/role/grant", name="routes", perm={"permType": "READWRITE", **below})
        admin("auth/enable")
        password = tmp_path / "password"
        password.write_text("wrong\n")
        told = {"endpoints": [etcd.url], "user": "muster", "password_file": str(password)}
        stranger = EtcdSink(EtcdSettings.model_validate(told))
        with pytest.raises(SinkError, match="not reached"):  # nobody vouches for its certificate
            stranger.publish([service("chat", ONE)])
        sink = EtcdSink(EtcdSettings.model_validate(told | {"ca": authority}))
        with pytest.raises(SinkError) as caught:
            sink.publish([service("chat", ONE)])
        assert "wrong" not in str(caught.value)
        password.write_text("muster's secret\n")
        sink.publish([service("chat", ONE)])
        sink.publish([service("chat", ONE, TWO)])
        sink.close()
        token = admin("auth/authenticate", name="root", password="root's secret")["token"]
        client.headers["Authorization"] = token
        rows = admin("kv/range", **below)["kvs"]
        assert [base64.b64decode(row["key"]).decode() for row in rows] == [
            "/muster/routes/chat/rte-1",
            "/muster/routes/chat/rte-2",
        ]
    finally:
        client.close()
        etcd.kill()


@contextmanager
def saying(answers: dict[str, bytes]) -> Iterator[str]:
    """The URL of a server that answers each path with these bytes."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = answers.get(self.path, b"{}")
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v3/lease/grant", b"{}"),
        ("/v3/lease/grant", b"[]"),
        ("/v3/lease/grant", b'{"ID": "one"}'),
        ("/v3/lease/grant", b"<html>"),
        ("/v3/lease/grant", b'{"ID": "7"' + b', "x": [' + b"[" * 100_000),
        ("/v3/kv/range", b"null"),
        ("/v3/kv/range", b'{"kvs": [{}]}'),
        ("/v3/kv/range", b'{"kvs": {"key": "YQ=="}}'),
        ("/v3/kv/range", b'{"kvs": [{"key": 7}]}'),
        ("/v3/kv/range", b'{"kvs": [{"key": "?", "value": "?"}]}'),
        ("/v3/auth/authenticate", b"{}"),
        ("/v3/auth/authenticate", '{"token": "\u00fc\\n"}'.encode()),
    ],
)
def test_answers_of_what_is_no_etcd_are_failures_that_are_told(
    tmp_path: Path, path: str, body: bytes
) -> None:
    (tmp_path / "password").write_text("secret")
    good = {"/v3/lease/grant": b'{"ID": "7"}', "/v3/auth/authenticate": b'{"token": "t"}'}
    with saying(good | {path: body}) as url:
        told = {"endpoints": [url], "user": "u", "password_file": str(tmp_path / "password")}
        sink = EtcdSink(EtcdSettings.model_validate(told))
        with pytest.raises(SinkError):
            sink.publish([service("chat", ONE)])
        sink.close()
