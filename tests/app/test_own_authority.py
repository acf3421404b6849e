"""A cluster's own authority: what it issues, when it issues anew, and who may read its keys."""

import shutil
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from muster.app.addresses import host_for_others, reachable_host
from muster.app.foreground import run_controller
from muster.app.home import Home
from muster.app.own_authority import AuthorityIncomplete, names_of, own_certificate
from muster.core.errors import MusterError
from muster.wire.transport import ServerTls, UnreadableCertificate, require_vouched

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
    said: list[str] = []
    own_certificate(home, [], say=said.append)
    assert tls.key.exists()
    assert said == [f"{tls.certificate} is missing, or its key: made anew"]
    tls.certificate.write_text("damaged")
    own_certificate(home, [], say=said.append)
    assert "or its key is damaged" in said[1]
    (home.path / "ca.key").write_text("damaged")
    with pytest.raises(AuthorityIncomplete, match=r"is damaged .*: put ca\.pem and ca\.key back"):
        own_certificate(home, [])


def test_first_authority_is_told_and_later_starts_say_nothing(home: Home) -> None:
    said: list[str] = []
    own_certificate(home, [], say=said.append)
    (made,) = said
    assert made.startswith("made a certificate authority: agents and people need a copy of")
    own_certificate(home, [], say=said.append)
    assert said == [made]


def test_key_without_its_certificate_is_never_overwritten(home: Home, tmp_path: Path) -> None:
    own_certificate(home, [])
    key = (home.path / "ca.key").read_bytes()
    fresh = Home(tmp_path / "fresh")
    fresh.create()
    (fresh.path / "ca.key").write_bytes(key)
    with pytest.raises(AuthorityIncomplete, match=r"ca\.pem is not, its certificate: put it back"):
        own_certificate(fresh, [])
    assert (fresh.path / "ca.key").read_bytes() == key
    assert [path.name for path in fresh.path.glob("*.pem")] == []
    shutil.copy(home.authority, fresh.authority)
    own_certificate(fresh, [])
    assert fresh.authority.read_bytes() == home.authority.read_bytes()


def test_certificate_without_the_key_serves_until_it_ends_and_nothing_is_made(home: Home) -> None:
    tls = own_certificate(home, [], NOW)
    kept = home.authority.read_bytes(), tls.certificate.read_bytes()
    (home.path / "ca.key").unlink()
    said: list[str] = []
    own_certificate(home, [], NOW, said.append)
    assert said == []
    own_certificate(home, ["later.example"], NOW + timedelta(days=310), said.append)
    assert "ca.key is missing" in said[0]
    assert "and cannot be made anew" in said[0]
    with pytest.raises(AuthorityIncomplete, match="put the key back from a backup"):
        own_certificate(home, [], NOW + timedelta(days=366))
    assert (home.authority.read_bytes(), tls.certificate.read_bytes()) == kept
    assert not (home.path / "ca.key").exists()


def test_files_of_two_authorities_are_refused(home: Home, tmp_path: Path) -> None:
    own_certificate(home, [])
    other = Home(tmp_path / "other")
    other.create()
    own_certificate(other, [])
    shutil.copy(other.authority, home.authority)
    with pytest.raises(AuthorityIncomplete, match="are of two authorities"):
        own_certificate(home, [])


def test_certificate_of_another_authority_of_the_same_name_is_made_anew_with_a_word(
    home: Home, tmp_path: Path
) -> None:
    ours = own_certificate(home, [])
    other = Home(tmp_path / "other")
    other.create()
    theirs = own_certificate(other, [])
    for mine, its in ((ours.certificate, theirs.certificate), (ours.key, theirs.key)):
        shutil.copy(its, mine)
    said: list[str] = []
    own_certificate(home, [], say=said.append)
    assert said == [f"{ours.certificate} was not issued by the authority in ca.pem: made anew"]
    require_vouched(ours, home.authority)
    with pytest.raises(UnreadableCertificate, match="was not issued by that authority"):
        require_vouched(theirs, home.authority)


def test_certificate_that_is_given_must_be_of_the_authority_that_is_given(
    home: Home, tmp_path: Path
) -> None:
    other = Home(tmp_path / "other")
    other.create()
    theirs = own_certificate(other, [])
    own_certificate(home, [])
    with pytest.raises(MusterError, match="was not issued by that authority"):
        run_controller(
            home=tmp_path / "third",
            tls_cert=theirs.certificate,
            tls_key=theirs.key,
            tls_ca=home.authority,
        )


def test_expired_certificate_that_is_given_is_refused(home: Home) -> None:
    tls = own_certificate(home, [], NOW - timedelta(days=400))
    with pytest.raises(UnreadableCertificate, match="has expired"):
        require_vouched(tls, home.authority)


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
