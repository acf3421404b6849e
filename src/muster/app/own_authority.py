"""A cluster's own certificate authority, for sites that have none: two key pairs in its home.

The authority's certificate is given to agents and people; its key never leaves the home, and is
never replaced. The controller's certificate is made anew when it nears its end, lacks a name, or is
not of the authority.
"""

import ipaddress
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from muster.app.home import Home, UnusableHome, write_private
from muster.core.errors import MusterError
from muster.files import write_once
from muster.wire.transport import ServerTls

AUTHORITY_LASTS = timedelta(days=3650)
CERTIFICATE_LASTS = timedelta(days=365)
RENEWED_BEFORE = timedelta(days=60)
_SKEW = timedelta(hours=1)
"""How far the clocks of clients may be behind."""

Name = str


class AuthorityIncomplete(MusterError):
    """The authority of a home lacks a part, or its parts do not go together; the text says which,
    and what to do. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority; ``key`` is None where only the certificate is kept here: nothing can
    be issued."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | None


def _nothing_said(sentence: str) -> None: ...


def own_certificate(
    home: Home,
    names: Iterable[Name],
    now: datetime | None = None,
    say: Callable[[str], None] = _nothing_said,
) -> ServerTls:
    """A certificate of the home's own authority for these names and this machine's. The authority
    is made where there is nothing of one, the certificate where it is missing or will not do.

    Args:
        say: takes a sentence on what was made, and on what an operator has to look at.

    Raises:
        AuthorityIncomplete: the home has a part of an authority; or no certificate can be issued.
        UnusableHome: a file cannot be written.
    """
    now = now or datetime.now(UTC)
    wanted = {*names, *_of_this_machine()}
    tls = ServerTls(home.path / "server.pem", home.path / "server.key")
    authority = kept_authority(home)
    if authority is None:
        authority = _made(home, now)
        say(
            f"made a certificate authority: agents and people need a copy of {home.authority}; "
            f"those that have the certificate of a former one refuse this controller"
        )
    why = _why_anew(tls, authority.certificate, wanted, now)
    if why is None:
        return tls
    if authority.key is None:
        missing = f"{_key_file(home)} is missing, the key of the authority in {home.authority}"
        if not _is_good(tls, authority.certificate, now):
            raise AuthorityIncomplete(
                f"{missing}, and {tls.certificate} {why}: put the key back from a backup; to begin "
                f"with another authority, move {home.authority} away, and give the new one to all "
                f"agents and people"
            )
        say(f"{missing}: {tls.certificate} {why}, and cannot be made anew")
        return tls
    if tls.certificate.exists():
        say(f"{tls.certificate} {why}: made anew")
    _issue(tls, authority.certificate, authority.key, wanted, now)
    return tls


def names_of(certificate: Path) -> tuple[Name, ...]:
    """The names and addresses in a certificate; none if it cannot be read."""
    with suppress(OSError, ValueError, x509.ExtensionNotFound):
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return (
            *names.get_values_for_type(x509.DNSName),
            *map(str, names.get_values_for_type(x509.IPAddress)),
        )
    return ()


def _key_file(home: Home) -> Path:
    return home.path / "ca.key"


def kept_authority(home: Home) -> Authority | None:
    """The authority of the home; None if there is nothing of one.

    Raises:
        AuthorityIncomplete: its certificate is missing, a file is damaged, or the two are not of
            one authority.
    """
    certificate_file, key_file = home.authority, _key_file(home)
    has_certificate, has_key = certificate_file.exists(), key_file.exists()
    if not has_certificate and not has_key:
        return None
    if not has_certificate:
        raise AuthorityIncomplete(
            f"{key_file} is there, the key of a certificate authority, and {certificate_file} is "
            f"not, its certificate: put it back from a backup, or from an agent or person, each of "
            f"whom has a copy; to begin with another authority, move {key_file} away, and give the "
            f"new ca.pem to all agents and people"
        )
    try:
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        key = _private_key(key_file) if has_key else None
    except (OSError, ValueError, TypeError) as error:
        raise AuthorityIncomplete(
            f"the authority in {home.path} is damaged ({error}): put ca.pem and ca.key back from a "
            f"backup; to begin with another authority, move both away, and give the new ca.pem to "
            f"all agents and people"
        ) from None
    if key is not None and key.public_key() != certificate.public_key():
        raise AuthorityIncomplete(
            f"{certificate_file} and {key_file} are of two authorities: put those back that belong "
            f"together; agents and people have a copy of the right ca.pem"
        )
    return Authority(certificate, key)


def _private_key(file: Path) -> ec.EllipticCurvePrivateKey:
    """
    Raises:
        OSError, ValueError, TypeError: it is no such key, or cannot be read.
    """
    key = serialization.load_pem_private_key(file.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{file.name} is of another kind")
    return key


def _made(home: Home, now: datetime) -> Authority:
    """A new authority, whose files are the home's from now on.

    Raises:
        AuthorityIncomplete: another process made one meanwhile.
        UnusableHome: they cannot be written.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Muster on {_host()}")])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(name, name, key.public_key(), now, AUTHORITY_LASTS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    key_file = _key_file(home)
    try:
        write_once(key_file, _pem(key).encode())
    except OSError as error:
        raise UnusableHome(f"cannot write {key_file}: {error.strerror}") from None
    if _private_key(key_file).public_key() != key.public_key():
        raise AuthorityIncomplete(f"another process has made {key_file}: start this one again")
    write_private(home.authority, _written(certificate), is_synced=True)
    return Authority(certificate, key)


def _issue(
    tls: ServerTls,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    names: Iterable[Name],
    now: datetime,
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Muster controller")])
    lasts = min(CERTIFICATE_LASTS, max(authority.not_valid_after_utc - now, _SKEW))
    certificate = (
        _builder(subject, authority.subject, key.public_key(), now, lasts)
        .add_extension(x509.SubjectAlternativeName(map(_general, sorted(names))), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
            critical=False,
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    write_private(tls.key, _pem(key))
    write_private(tls.certificate, _written(certificate))


def _why_anew(
    tls: ServerTls, authority: x509.Certificate, names: set[Name], now: datetime
) -> str | None:
    """Why the present certificate will not do, as what follows its name; None if it will."""
    if not (tls.certificate.exists() and tls.key.exists()):
        return "is missing, or its key"
    try:
        found = x509.load_pem_x509_certificate(tls.certificate.read_bytes())
        key = _private_key(tls.key)
    except (OSError, ValueError, TypeError) as error:
        return f"or its key is damaged ({error})"
    if not is_issued_by(found, authority):
        return "was not issued by the authority in ca.pem"
    if key.public_key() != found.public_key():
        return "does not go with its key"
    if found.not_valid_after_utc <= now + RENEWED_BEFORE:
        return f"ends on {found.not_valid_after_utc:%Y-%m-%d}"
    if lacking := names - set(names_of(tls.certificate)):
        return f"is not for {', '.join(sorted(lacking))}"
    return None


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether the authority has signed the certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _is_good(tls: ServerTls, authority: x509.Certificate, now: datetime) -> bool:
    """Whether clients of the authority accept the present certificate, for names that it has."""
    return _why_anew(tls, authority, set(), now - RENEWED_BEFORE) is None


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    lasts: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + lasts)
    )


def _general(name: Name) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _written(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def _host() -> str:
    return socket.gethostname() or "localhost"


def _of_this_machine() -> set[Name]:
    """Names and addresses of this machine, as it and other machines may use them."""
    names = {"localhost", "127.0.0.1", "::1", _host()}
    full = socket.getfqdn()
    return names | ({full} if full.isascii() else set())
