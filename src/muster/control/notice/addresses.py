"""The machines to which notices may be sent: users give URLs, and the controller calls them.

This module is pure and imports nothing of Muster, because the sending process imports it.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_METADATA = frozenset(
    map(
        ip_address,
        (
            *("169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
            *("fd00:ec2::254", "fd20:ce::254"),
        ),
    )
)
"""Addresses at which clouds tell a machine its secrets, also outside of link-local networks."""
_SHARED = ip_network("100.64.0.0/10")
_TRANSLATED = ip_network("64:ff9b::/96")
_WITH_OTHERS_INSIDE = (
    ip_network("::/96"),
    ip_network("::ffff:0:0:0/96"),
    ip_network("2002::/16"),
    ip_network("2001::/32"),
    ip_network("64:ff9b:1::/48"),
)
"""Networks whose addresses contain an IPv4 address; all of their addresses are refused:
IPv4-compatible, IPv4-translated, 6to4, Teredo, local NAT64."""
_SITE_LOCAL = ip_network("fec0::/10")


@dataclass(frozen=True, slots=True)
class Reach:
    """How far notices may go: to public addresses always, to this machine and private networks if
    allowed. Link-local, multicast, unspecified and reserved addresses and those of clouds' metadata
    are never allowed.
    """

    loopback: bool = False
    private: bool = False

    def refusal(self, host: str) -> str | None:
        """Why nothing may be sent to an address, as the rest of a sentence "the address …"; None if
        it is allowed."""
        try:
            address = _plain(ip_address(host.partition("%")[0]))
        except ValueError:
            return "is none"
        if address in _METADATA:
            return "is where clouds tell a machine its secrets"
        if address.is_loopback:
            return None if self.loopback else "is the controller's own machine"
        if address.is_unspecified or address.is_multicast or address.is_link_local:
            return "is no machine of the internet"
        if address in _SITE_LOCAL:
            return "is in a network that was abolished"
        if any(address in network for network in _WITH_OTHERS_INSIDE):
            return "stands for another one"
        if address.is_private or address in _SHARED or not address.is_global:
            if address.is_reserved:
                return "is reserved"
            return None if self.private else "is in a private network"
        return None


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 address maps, or the address itself."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _TRANSLATED:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address
