"""The clusters to which a person has logged in, and their precedence."""

import json
import stat
from pathlib import Path

import pytest

from muster.client import Client, Unreachable, patience
from muster.client.connection import find_connection
from muster.client.contexts import Contexts, NamedCluster, read_contexts, write_contexts
from muster.client.errors import NoConnection, NoToken

FAR = "https://far.example:7600"
NEAR = "http://127.0.0.1:7600"


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person of whom nothing is known: empty settings, no cluster, no environment."""
    for name in ("MUSTER_HOME", "MUSTER_URL", "MUSTER_TOKEN", "MUSTER_CA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def local(directory: Path, token: str = "local") -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "client.json").write_text(json.dumps({"url": NEAR, "token": token}))


def logged_in(current: str | None = "far") -> None:
    far = NamedCluster(FAR, "far", "/far.pem")
    write_contexts(
        Contexts(current, {"far": far, "other": NamedCluster("https://other:1", "other")})
    )


def test_contexts_come_back_as_they_were_kept_and_are_for_their_owner_only(settings: Path) -> None:
    assert read_contexts() == Contexts()
    logged_in()
    assert read_contexts().chosen == NamedCluster(FAR, "far", "/far.pem")
    path = settings / "config" / "muster" / "contexts.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert "far" not in repr(NamedCluster("u", "far"))


def test_flags_come_before_the_environment_that_before_the_context_and_that_before_the_home(
    settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local(settings / ".muster")
    assert find_connection(None, None).url == NEAR
    logged_in()
    found = find_connection(None, None)
    assert (found.url, found.token, found.ca) == (FAR, "far", Path("/far.pem"))
    local(settings / "home", "home")
    monkeypatch.setenv("MUSTER_HOME", str(settings / "home"))
    assert find_connection(None, None).token == "home"
    monkeypatch.setenv("MUSTER_URL", "https://other:1")
    assert find_connection(None, None).token == "other"
    monkeypatch.setenv("MUSTER_CA", "/environment.pem")
    assert find_connection(FAR, None).ca == Path("/environment.pem")
    flags = find_connection(FAR, "flag", "/flag.pem")
    assert (flags.url, flags.token, flags.ca) == (FAR, "flag", Path("/flag.pem"))


def test_token_of_a_context_goes_to_its_own_url_only() -> None:
    logged_in()
    with pytest.raises(NoToken, match="muster login"):
        find_connection("https://elsewhere.example", None)
    assert find_connection("https://other:1", None).token == "other"


def test_person_at_the_local_cluster_is_not_sent_to_one_of_the_contexts() -> None:
    logged_in(current=None)
    with pytest.raises(NoConnection, match="no cluster is known"):
        find_connection(None, None)


def test_silence_of_a_context_is_no_reason_to_start_a_cluster_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("FIRST_CONTACT_S", "WAITING_S", "PATIENCE_S"):
        monkeypatch.setattr(patience, name, 0.1)
    nobody = "http://127.0.0.1:1"
    write_contexts(Contexts("far", {"far": NamedCluster(nobody, "t")}))
    with Client() as client, pytest.raises(Unreachable, match="context far names it: is it up"):
        client.jobs()
    monkeypatch.setenv("MUSTER_URL", nobody)
    with Client() as client, pytest.raises(Unreachable, match="`muster up` starts one"):
        client.jobs()


def test_damaged_contexts_are_told_with_what_to_do(settings: Path) -> None:
    path = settings / "config" / "muster" / "contexts.json"
    path.parent.mkdir(parents=True)
    for text in ("", "[]", '{"contexts": {"a": {"nope": 1}}, "current": null}'):
        path.write_text(text)
        with pytest.raises(NoConnection, match="is damaged: remove it, and log in again"):
            read_contexts()
