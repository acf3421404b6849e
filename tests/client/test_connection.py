"""A client's choice of the cluster and of the token."""

import json
from pathlib import Path

import pytest

from muster.client.connection import Connection, find_connection
from muster.client.contexts import Contexts, NamedCluster
from muster.client.errors import NoConnection, NoToken

URL = "http://127.0.0.1:7600"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data directory, and nothing in the environment."""
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path))
    monkeypatch.delenv("MUSTER_URL", raising=False)
    monkeypatch.delenv("MUSTER_TOKEN", raising=False)
    return tmp_path


def write(home: Path, **content: object) -> None:
    (home / "client.json").write_text(json.dumps(content))


def test_file_of_the_data_directory_is_enough(home: Path) -> None:
    write(home, url=URL + "/", token="t")
    assert find_connection(None, None) == Connection(URL, "t")


def test_data_directory_is_in_the_home_of_the_user_by_default(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MUSTER_HOME")
    monkeypatch.setenv("HOME", str(home))
    (home / ".muster").mkdir()
    write(home / ".muster", url=URL, token="t")
    assert find_connection(None, None) == Connection(URL, "t")


def test_arguments_come_before_the_environment_and_that_before_the_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, url=URL, token="file")
    monkeypatch.setenv("MUSTER_TOKEN", "environment")
    assert find_connection(None, None) == Connection(URL, "environment")
    monkeypatch.setenv("MUSTER_URL", "https://cluster.example")
    assert find_connection(None, None) == Connection("https://cluster.example", "environment")
    assert find_connection(URL, "argument") == Connection(URL, "argument")


def test_token_of_the_file_is_not_shown_to_another_cluster(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, url=URL, token="t")
    monkeypatch.setenv("MUSTER_URL", "https://other.example")
    with pytest.raises(NoConnection, match="set MUSTER_TOKEN"):
        find_connection(None, None)


def test_localhost_is_the_cluster_of_the_file_and_its_token_goes_nowhere_else(home: Path) -> None:
    write(home, url=URL, token="t")
    assert find_connection("http://localhost:7600/", None) == Connection(URL, "t")
    for other in ("http://localhost:7601", "https://localhost:7600", "http://127.0.0.2:7600"):
        with pytest.raises(NoToken, match="no token for"):
            find_connection(other, None)


@pytest.mark.parametrize("url", ["http://cluster.example:7600", "HTTP://h", "http://127.0.0.x"])
def test_token_does_not_travel_unencrypted_to_another_machine(url: str) -> None:
    with pytest.raises(NoConnection, match="use https"):
        find_connection(url, "t")


def test_token_may_travel_unencrypted_within_the_machine() -> None:
    for url in ("http://localhost:7600", "http://[::1]:7600", "http://127.1.2.3:7600"):
        assert find_connection(url, "t").loopback


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "start one with `muster up`"),
        ("", "is damaged: `muster down --keep` and then `muster up`"),
        ("{", "is damaged: `muster down --keep` and then `muster up`"),
        ("[]", "is damaged: `muster down --keep` and then `muster up`"),
        ('{"url": "http://127.0.0.1:1"}', "is damaged: `muster down --keep` and then `muster up`"),
    ],
)
def test_file_that_does_not_say_it_is_told_with_what_to_do(
    home: Path, content: str | None, told: str
) -> None:
    if content is not None:
        (home / "client.json").write_text(content)
    with pytest.raises(NoConnection, match=told):
        find_connection(None, None)


@pytest.mark.parametrize(
    ("url", "token", "told"),
    [
        ("127.0.0.1:7600", "t", "is not an http or https URL"),
        ("ftp://127.0.0.1", "t", "is not an http or https URL"),
        ("http://", "t", "is not an http or https URL"),
        ("http://127.0.0.1:port", "t", "is not an http or https URL"),
        (URL, "a b", "no token has"),
        (URL, "a\nb", "no token has"),
        (URL, "ä", "no token has"),
    ],
)
def test_nonsense_is_refused_before_anything_is_sent(url: str, token: str, told: str) -> None:
    with pytest.raises(NoConnection, match=told):
        find_connection(url, token)


def test_no_token_is_shown_with_what_holds_it() -> None:
    kept = Contexts("cloud", {"cloud": NamedCluster(URL, "secret-token")})
    assert URL in repr(kept)
    assert URL in repr(Connection(URL, "secret-token"))
    assert "secret-token" not in repr(kept) + repr(Connection(URL, "secret-token"))
