"""A host and a port in one text: ``10.0.0.5:7601``, and ``[::1]:7601`` for an address of IPv6."""

import ipaddress


def joined(host: str, port: int | str) -> str:
    """The text of a host and a port, as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parted(text: str) -> tuple[str, str]:
    """The host, without brackets, and the port of a text."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), port


def is_loopback(host: str) -> bool:
    """Whether a host, by its name or address, is this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
