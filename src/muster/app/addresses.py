"""Names under which a controller that listens on an address can be reached."""

import ipaddress
import socket

from muster.core.host_port import is_loopback
from muster.wire.transport import ServerTls


def reachable_host(host: str, tls: ServerTls | None) -> str:
    """A name or address of this controller for clients on its own machine: loopback if it listens
    there, never a wildcard, and with TLS a name that the certificate is for."""
    everywhere = is_everywhere(host)
    if tls is None:
        return ("::1" if ":" in host else "127.0.0.1") if everywhere else host
    from muster.app.own_authority import names_of

    names = [name for name in names_of(tls.certificate) if not name.startswith("*")]
    loopback = ["localhost", "127.0.0.1", "::1"] if everywhere or is_loopback(host) else []
    for wanted in (host, *loopback) if not everywhere else loopback:
        if wanted in names:
            return wanted
    return names[0] if names else (socket.gethostname() if everywhere else host)


def host_for_others(host: str, tls: ServerTls | None) -> str:
    """A name or address of this controller for other machines; a loopback address if it listens on
    no other. With TLS it is a name that the certificate is for, a full name before a short one."""
    if is_loopback(host) or tls is None:
        return host
    from muster.app.own_authority import names_of

    names = [
        name
        for name in names_of(tls.certificate)
        if not name.startswith("*") and not is_loopback(name)
    ]
    if host in names:
        return host
    full = [name for name in names if "." in name]
    return next(iter((*full, *names)), socket.gethostname())


def is_everywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host
