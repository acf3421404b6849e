"""A look whether a port speaks TLS, for errors that say so."""

import socket
import ssl

PROBE_TIMEOUT_S = 2.0
"""How long a look whether a port speaks TLS may take."""


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
