"""Why a controller cannot be reached is told apart, by both clients, with real certificates."""

import asyncio
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from tests.client.authority import certificate, served

from muster.client import AsyncClient, Client, NoConnection, Unreachable, Untrusted, patience

Ask = Callable[[str, Path | None], str]


def blocking(url: str, ca: Path | None) -> str:
    with Client(url, "t", ca=ca) as client:
        return client.health().status


def awaited(url: str, ca: Path | None) -> str:
    async def ask() -> str:
        async with AsyncClient(url, "t", ca=ca) as client:
            return (await client.health()).status

    return asyncio.run(ask())


@pytest.fixture(params=[blocking, awaited])
def ask(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ask:
    """The health of a cluster by one of the clients."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path))
    monkeypatch.delenv("MUSTER_CA", raising=False)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setattr(patience, "FIRST_CONTACT_S", 0.2)
    asked: Ask = request.param
    return asked


def test_certificate_of_a_private_authority_is_trusted_by_its_file(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = certificate(tmp_path / "a")
    ca = tmp_path / "a" / "ca.pem"
    with served(tls=tls) as port:
        url = f"https://localhost:{port}"
        assert ask(url, ca) == "ok"
        with pytest.raises(Untrusted, match=r"is not trusted .*--ca FILE or MUSTER_CA"):
            ask(url, None)
        certificate(tmp_path / "b")
        with pytest.raises(Untrusted, match=r"is .*ca\.pem the authority of this cluster"):
            ask(url, tmp_path / "b" / "ca.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(ca))
        assert ask(url, None) == "ok"
        monkeypatch.delenv("SSL_CERT_FILE")
        monkeypatch.setenv("MUSTER_CA", str(ca))
        assert ask(url, None) == "ok"


def test_wrong_name_and_end_of_a_certificate_are_told_apart(ask: Ask, tmp_path: Path) -> None:
    ca = tmp_path / "a" / "ca.pem"
    with (
        served(tls=certificate(tmp_path / "a"), host="127.0.0.2") as port,
        pytest.raises(Untrusted, match=r"is for other names than 127\.0\.0\.2"),
    ):
        ask(f"https://127.0.0.2:{port}", ca)
    old = tmp_path / "old"
    with (
        served(tls=certificate(old, age=timedelta(days=400))) as port,
        pytest.raises(Untrusted, match="has expired: its operator must renew it"),
    ):
        ask(f"https://localhost:{port}", old / "ca.pem")


def test_plain_http_and_tls_taken_for_each_other_are_told(ask: Ask, tmp_path: Path) -> None:
    with served() as port, pytest.raises(Unreachable) as told:
        ask(f"https://127.0.0.1:{port}", None)
    assert f"does not speak TLS: is the address http://127.0.0.1:{port}?" in str(told.value)
    with served(tls=certificate(tmp_path / "a")) as port, pytest.raises(Unreachable) as told:
        ask(f"http://127.0.0.1:{port}", None)
    assert f"speaks TLS only: use https://127.0.0.1:{port}" in str(told.value)


def test_nobody_a_stranger_and_an_unknown_name_are_told_apart(ask: Ask) -> None:
    with pytest.raises(Unreachable, match="nothing listens there"):
        ask("http://127.0.0.1:9", None)
    with served(b"hello") as port, pytest.raises(Unreachable, match="is not a Muster controller"):
        ask(f"http://127.0.0.1:{port}", None)
    # No name server is asked about a name that begins with a hyphen.
    with pytest.raises(Unreachable, match=r"the name -nowhere\.invalid has no address"):
        ask("https://-nowhere.invalid", None)


def test_authority_that_cannot_be_read_is_told(ask: Ask, tmp_path: Path) -> None:
    with pytest.raises(NoConnection, match=r"cannot read the certificate .*: No such file"):
        ask("https://localhost:9", tmp_path / "none.pem")
    (tmp_path / "odd.pem").write_text("no certificate")
    with pytest.raises(NoConnection, match="holds no certificate in PEM"):
        ask("https://localhost:9", tmp_path / "odd.pem")


@contextmanager
def proxy(port: int) -> Iterator[tuple[str, list[bytes]]]:
    """The URL of a proxy to this machine's ``port`` for any host, and what it was asked."""
    asked: list[bytes] = []

    def carry() -> None:
        client, _ = listener.accept()
        with client, socket.create_connection(("127.0.0.1", port)) as server:
            asked.append(client.recv(65536).split(b"\r\n")[0])
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                ready, _, _ = select.select([client, server], [], [], 20.0)
                for source in ready:
                    if not (data := source.recv(65536)):
                        return
                    (server if source is client else client).sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=carry, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        thread.join(20.0)


def test_another_machine_is_reached_through_the_proxy_of_the_environment(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = certificate(tmp_path / "a", "controller.example")
    ca = tmp_path / "a" / "ca.pem"
    with served(tls=tls) as port, proxy(port) as (url, asked):
        monkeypatch.setenv("HTTPS_PROXY", url)
        monkeypatch.setenv("https_proxy", url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert ask(f"https://localhost:{port}", ca) == "ok", "it does not stand before this machine"
        assert asked == []
        assert ask(f"https://controller.example:{port}", ca) == "ok"
    assert [each.split(b" ")[:2] for each in asked] == [
        [b"CONNECT", f"controller.example:{port}".encode()]
    ]
