"""Addresses of clients, as limits count them."""

from ipaddress import IPv6Address

_SITE_BITS = 64
"""Bits of an address of version 6 that its holder cannot choose: a site has all below them."""


def origin_of(address: str) -> str:
    """An address as limits count it: of version 6 those of one site count as one."""
    if ":" not in address:
        return address
    found = IPv6Address(address.partition("%")[0])
    if (mapped := found.ipv4_mapped) is not None:
        return str(mapped)
    return f"{IPv6Address(int(found) >> _SITE_BITS << _SITE_BITS)}/{_SITE_BITS}"
