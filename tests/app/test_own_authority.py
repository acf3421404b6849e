"""A cluster's own authority: what it issues, when it issues anew, and who may read its keys."""

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from muster.app.addresses import host_for_others, reachable_host
from muster.app.home import Home
from muster.app.own_authority import names_of, own_certificate
from muster.core.errors import MusterError
from muster.wire.transport import ServerTls

NOW = datetime.now(UTC)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.create()
    return home


def test_certificate_stays_until_it_nears_its_end_or_is_for_other_names(home: Home) -> None:
    tls = own_certificate(home, ["a.example"], NOW)
    ca, first = home.authority.read_bytes(), tls.certificate.read_bytes()
    assert {"a.example", "localhost", "127.0.0.1", "::1"} <= set(names_of(tls.certificate))
    own_certificate(home, [], NOW + timedelta(days=200))
    assert tls.certificate.read_bytes() == first
    own_certificate(home, [], NOW + timedelta(days=310))
    renewed = tls.certificate.read_bytes()
    assert renewed != first
    own_certificate(home, ["b.example"], NOW + timedelta(days=310))
    assert tls.certificate.read_bytes() != renewed
    assert home.authority.read_bytes() == ca, "what machines and people have stays good"


def test_keys_are_for_their_owner_only_and_fit_the_certificate(home: Home) -> None:
    tls = own_certificate(home, [])
    for path in (tls.key, home.path / "ca.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)


def test_key_lost_with_its_certificate_left_is_made_anew_and_a_damaged_one_told(home: Home) -> None:
    tls = own_certificate(home, [])
    tls.key.unlink()
    own_certificate(home, [])
    assert tls.key.exists()
    (home.path / "ca.key").write_text("damaged")
    with pytest.raises(MusterError, match=r"damaged .*: remove ca\.pem, ca\.key"):
        own_certificate(home, [])


def test_client_on_the_machine_is_told_a_name_that_the_certificate_is_for(
    home: Home, tmp_path: Path
) -> None:
    tls = own_certificate(home, ["far.example", "10.0.0.5"])
    none = ServerTls(tmp_path / "none.pem", tmp_path / "none.key")
    assert reachable_host("0.0.0.0", tls) == "localhost"
    assert reachable_host("::", tls) == "localhost"
    assert reachable_host("127.0.0.1", tls) == "127.0.0.1"
    assert reachable_host("10.0.0.5", tls) == "10.0.0.5"
    assert reachable_host("0.0.0.0", None) == "127.0.0.1"
    assert reachable_host("::", None) == "::1"
    assert reachable_host("127.0.0.1", None) == "127.0.0.1"
    assert reachable_host("10.0.0.7", none) == "10.0.0.7"
    assert reachable_host("0.0.0.0", none) not in ("0.0.0.0", "")


def test_other_machines_are_told_a_name_that_is_not_this_machines_alone(home: Home) -> None:
    tls = own_certificate(home, ["far.example", "10.0.0.5"])
    assert host_for_others("10.0.0.5", tls) == "10.0.0.5"
    assert host_for_others("0.0.0.0", tls) not in ("0.0.0.0", "localhost", "127.0.0.1", "::1")
    assert host_for_others("127.0.0.1", tls) == "127.0.0.1", "it listens on no other"
    assert host_for_others("127.0.0.1", None) == "127.0.0.1"
