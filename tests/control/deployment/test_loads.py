"""The proxies that report, and where they are."""

import msgspec
import pytest

from muster.control.deployment.loads import FORGET_S, Loads
from muster.core.serving.traffic import LoadReport


def test_proxies_are_told_by_their_urls_until_they_report_no_more() -> None:
    loads = Loads()
    loads.told(LoadReport(proxy="b:2", seconds=1.0, url="http://b:2"), 100.0)
    loads.told(LoadReport(proxy="a:1", seconds=1.0, url="https://a:1"), 101.0)
    loads.told(LoadReport(proxy="c:3", seconds=1.0), 101.0)  # it says not where
    assert loads.urls(101.0) == ("http://b:2", "https://a:1")
    assert loads.urls(100.0 + FORGET_S + 0.5) == ("https://a:1",)
    assert loads.urls(101.0 + FORGET_S + 0.5) == ()


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "http://a:1/\x1b[2J",
        "http://a b",
        "http://a:1\n",
        "http://" + "a" * 300,
    ],
)
def test_url_that_is_none_is_refused(url: str) -> None:
    said = msgspec.json.encode({"proxy": "a:1", "seconds": 1.0, "url": url})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(said, type=LoadReport)
