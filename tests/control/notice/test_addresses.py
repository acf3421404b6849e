"""The addresses to which a notice may be sent."""

import pytest

from muster.control.notice.addresses import Reach

NEVER = (
    *("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16"),
    *("169.254.0.1", "fe80::1", "fe80::1%eth0", "0.0.0.0", "::", "224.0.0.1", "ff02::1"),
    *("255.255.255.255", "240.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"),
    *("192.0.0.192", "::ffff:192.0.0.192", "64:ff9b::c000:c0", "::ffff:100.100.100.200"),
    *("fd20:ce::254", "fec0::1", "feff::1", "::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8"),
    *("2002:7f00:1::", "2001:0:7f00:1::", "64:ff9b:1::7f00:1", "::7f00:1", "hooks.example.org", ""),
)
OWN = ("127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1")
PRIVATE = ("10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd12::1", "::ffff:10.0.0.1")
PUBLIC = ("1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8")


@pytest.mark.parametrize("reach", [Reach(), Reach(True, True)], ids=["near", "far"])
@pytest.mark.parametrize("address", NEVER)
def test_addresses_that_nobody_may_allow_are_refused(address: str, reach: Reach) -> None:
    assert reach.refusal(address)


@pytest.mark.parametrize("address", OWN)
def test_own_machine_is_refused_unless_it_is_allowed(address: str) -> None:
    assert Reach(private=True).refusal(address) == "is the controller's own machine"
    assert Reach(loopback=True).refusal(address) is None


@pytest.mark.parametrize("address", PRIVATE)
def test_private_network_is_refused_unless_it_is_allowed(address: str) -> None:
    assert Reach(loopback=True).refusal(address) == "is in a private network"
    assert Reach(private=True).refusal(address) is None


@pytest.mark.parametrize("address", PUBLIC)
def test_public_address_is_allowed(address: str) -> None:
    assert Reach().refusal(address) is None
