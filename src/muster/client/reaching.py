"""The reasons why a controller cannot be reached, told apart because each has a remedy of its
own."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from muster.client.errors import NoConnection, Unreachable, Untrusted
from muster.client.exchange import NoAnswer
from muster.client.http1 import NoStatusLine

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from pathlib import Path

    from muster.client.connection import Connection

# From OpenSSL's x509_vfy.h.
_NOT_YET_VALID, _EXPIRED = 9, 10
_WRONG_NAME = frozenset({62, 64})


def tls_context(ca: Path | None) -> ssl.SSLContext:
    """A context that trusts the authorities in ``ca`` alone; without ``ca`` the system's, or
    SSL_CERT_FILE's.

    Raises:
        NoConnection: the file holds no certificates.
    """
    import ssl

    try:
        return ssl.create_default_context(cafile=ca)
    except ssl.SSLError:
        raise NoConnection(f"{ca} holds no certificate in PEM: give the authority's") from None
    except OSError as error:
        raise NoConnection(f"cannot read the certificate {ca}: {error.strerror}") from None


def problem_of(error: BaseException, connection: Connection) -> Exception:
    """The error for a failed request; ``NoAnswer`` where trying again may help."""
    is_secure = urlsplit(connection.url).scheme == "https"
    for cause in _causes(error):
        if is_secure and (found := _problem_of_tls(cause, connection)) is not None:
            return found
        if isinstance(cause, socket.gaierror):
            host = urlsplit(connection.url).hostname
            return NoAnswer(f"the name {host} has no address: {cause.strerror}")
        if isinstance(cause, ConnectionRefusedError):
            return NoAnswer("nothing listens there")
    return NoAnswer(str(error) or type(error).__name__, hung_up=_hung_up(error))


def _problem_of_tls(cause: BaseException, connection: Connection) -> Exception | None:
    import ssl  # takes long, and without TLS nobody needs it

    if isinstance(cause, ssl.SSLCertVerificationError):
        return Untrusted(_distrust(cause, connection))
    if isinstance(cause, ssl.SSLError) and cause.reason in (
        "WRONG_VERSION_NUMBER",
        "RECORD_LAYER_FAILURE",
        "PACKET_LENGTH_TOO_LONG",
    ):
        plain = "http" + connection.url.removeprefix("https")
        return Unreachable(
            f"what listens at {connection.url} does not speak TLS: is the address {plain}?"
        )
    return None


def _distrust(error: ssl.SSLCertVerificationError, connection: Connection) -> str:
    url = connection.url
    if error.verify_code == _EXPIRED:
        return f"the certificate of {url} has expired: its operator must renew it"
    if error.verify_code == _NOT_YET_VALID:
        return f"the certificate of {url} is not valid yet: are the clocks right?"
    if error.verify_code in _WRONG_NAME:
        host = urlsplit(url).hostname
        return (
            f"the certificate of {url} is for other names than {host}: use one that it is for "
            f"({error.verify_message})"
        )
    said = f"the certificate of {url} is not trusted ({error.verify_message})"
    if connection.ca:
        return f"{said}: is {connection.ca} the authority of this cluster?"
    return (
        f"{said}: if the cluster has an authority of its own, name its certificate with --ca FILE "
        f"or MUSTER_CA"
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _hung_up(error: BaseException) -> bool:
    """Whether a server accepted the connection, and closed it instead of answering."""
    ended = (NoStatusLine, ConnectionResetError)
    return any(
        isinstance(cause, ended) or type(cause).__name__ == "RemoteProtocolError"
        for cause in _causes(error)
    )


def speaks_tls(url: str) -> bool:
    """Whether what listens at a URL would have been understood with https."""
    from muster.tls_handshake import speaks_tls as handshake_succeeds

    parts = urlsplit(url)
    return handshake_succeeds(parts.hostname or "", parts.port or 80)
