"""A cluster's own certificate authority, for sites that have none: two key pairs in its home.

The authority's certificate is given to agents and people; its key never leaves the home. The
controller's certificate is made anew when it nears its end or lacks a name.
"""

import ipaddress
import socket
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from muster.app.home import Home, write_private
from muster.core.errors import MusterError
from muster.wire.transport import ServerTls

AUTHORITY_LASTS = timedelta(days=3650)
CERTIFICATE_LASTS = timedelta(days=365)
RENEWED_BEFORE = timedelta(days=60)
_SKEW = timedelta(hours=1)
"""How far the clocks of clients may be behind."""

Name = str


def own_certificate(home: Home, names: Iterable[Name], now: datetime | None = None) -> ServerTls:
    """A certificate of the home's own authority for these names and this machine's. Authority and
    certificate are made where they are missing.

    Raises:
        MusterError: a file cannot be read or written.
    """
    now = now or datetime.now(UTC)
    wanted = {*names, *_of_this_machine()}
    tls = ServerTls(home.path / "server.pem", home.path / "server.key")
    try:
        authority, key = _authority(home, now)
        if not _serves(tls, authority, wanted, now):
            _issue(tls, authority, key, wanted, now)
    except (ValueError, TypeError) as error:
        raise MusterError(
            f"a key or certificate in {home.path} is damaged ({error}): remove ca.pem, ca.key, "
            f"server.pem and server.key, and give the new ca.pem to agents and people"
        ) from None
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


def _authority(home: Home, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key_file = home.path / "ca.key"
    if home.authority.exists() and key_file.exists():
        kept = serialization.load_pem_private_key(key_file.read_bytes(), None)
        if not isinstance(kept, ec.EllipticCurvePrivateKey):
            raise ValueError("ca.key is of another kind")
        return x509.load_pem_x509_certificate(home.authority.read_bytes()), kept
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
    write_private(key_file, _pem(key))
    write_private(home.authority, certificate.public_bytes(serialization.Encoding.PEM).decode())
    return certificate, key


def _issue(
    tls: ServerTls,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    names: Iterable[Name],
    now: datetime,
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Muster controller")])
    certificate = (
        _builder(subject, authority.subject, key.public_key(), now, CERTIFICATE_LASTS)
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
    write_private(tls.certificate, certificate.public_bytes(serialization.Encoding.PEM).decode())


def _serves(tls: ServerTls, authority: x509.Certificate, names: set[Name], now: datetime) -> bool:
    """Whether the present certificate will do."""
    if not (tls.certificate.exists() and tls.key.exists()):
        return False
    found = x509.load_pem_x509_certificate(tls.certificate.read_bytes())
    key = serialization.load_pem_private_key(tls.key.read_bytes(), None)
    return (
        found.issuer == authority.subject
        and found.not_valid_after_utc > now + RENEWED_BEFORE
        and names <= set(names_of(tls.certificate))
        and key.public_key() == found.public_key()
    )


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
