"""A look whether and how a port speaks TLS, for errors that say so."""

import socket
import ssl
from enum import StrEnum

PROBE_TIMEOUT_S = 2.0
"""How long a look at a port may take."""


class CertificateRefusal(StrEnum):
    """Why a client refuses a server's certificate, as what follows "its certificate"."""

    OTHER_AUTHORITY = "was not issued by that authority"
    EXPIRED = "has expired"
    NOT_YET_VALID = "is not valid yet by the clock of this machine"
    OTHER_NAME = "is not for the name by which it was asked"
    UNVERIFIABLE = "cannot be verified"


# Results of a verification by OpenSSL (x509_vfy.h).
_MEANINGS = {
    9: CertificateRefusal.NOT_YET_VALID,
    10: CertificateRefusal.EXPIRED,
    62: CertificateRefusal.OTHER_NAME,
    64: CertificateRefusal.OTHER_NAME,
    **dict.fromkeys((2, 7, 18, 19, 20, 21, 30), CertificateRefusal.OTHER_AUTHORITY),
}


def speaks_tls(host: str, port: int) -> bool:
    """Whether a TLS handshake succeeds there, with any certificate; nothing is sent. Blocks for
    ``PROBE_TIMEOUT_S`` at most."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), PROBE_TIMEOUT_S) as plain,
            context.wrap_socket(plain),
        ):
            return True
    except OSError:
        return False


def refused_certificate(host: str, port: int, authority: str) -> CertificateRefusal | None:
    """Why a client that trusts this authority alone refuses the certificate that is shown there;
    None if it does not, or none is shown. Nothing is sent. Blocks for ``PROBE_TIMEOUT_S`` at most.

    Args:
        authority: certificates in PEM.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority)
    try:
        with (
            socket.create_connection((host, port), PROBE_TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return None
    except ssl.SSLCertVerificationError as error:
        return _meaning(error)
    except OSError:
        return None


def refused_pair(certificate: str, key: str, authority: str) -> CertificateRefusal | None:
    """Why clients that trust this authority alone would refuse a server with this certificate,
    whatever its name; None if they would not. It is found out by a handshake in memory.

    Args:
        certificate, key: files of a certificate chain and its private key, which go together.
        authority: certificates in PEM.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(cadata=authority)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key, "")
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(2):  # hello there and back, then the verdict
        for side in (asking, answering):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return _meaning(error)
    return None


def _meaning(error: ssl.SSLCertVerificationError) -> CertificateRefusal:
    return _MEANINGS.get(error.verify_code, CertificateRefusal.UNVERIFIABLE)
