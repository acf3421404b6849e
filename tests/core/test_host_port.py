"""A host and a port in one text."""

import pytest

from muster.core.host_port import joined, parted


@pytest.mark.parametrize(
    ("host", "text"),
    [("10.0.0.5", "10.0.0.5:80"), ("n1.example", "n1.example:80"), ("::1", "[::1]:80")],
)
def test_text_is_as_in_a_url_and_is_parted_again(host: str, text: str) -> None:
    assert joined(host, 80) == text
    assert parted(text) == (host, "80")


def test_address_of_ipv6_that_was_stored_without_brackets_is_parted_too() -> None:
    assert parted("::1:28486") == ("::1", "28486")
