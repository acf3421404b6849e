"""The agent's directory: one agent at a time, and a secret that only its owner reads."""

import os
from pathlib import Path

import pytest

from muster.agent.identity import (
    AgentIdentity,
    UnusableDirectory,
    load_identity,
    locked,
    save_identity,
)
from muster.core.errors import Conflict
from muster.core.ids import AgentId

IDENTITY = AgentIdentity(AgentId("agt-1"), "secret")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_identity_saved_is_loaded_again(tmp_path: Path) -> None:
    assert load_identity(tmp_path) is None
    save_identity(tmp_path, IDENTITY)
    save_identity(tmp_path, AgentIdentity(AgentId("agt-2"), "newer"))
    assert load_identity(tmp_path) == AgentIdentity(AgentId("agt-2"), "newer")


def test_directory_and_credential_are_for_their_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "state" / "agent"
    directory.mkdir(parents=True, mode=0o755)
    with locked(directory):
        save_identity(directory, IDENTITY)
        assert mode(directory) == 0o700
        assert mode(directory / "credential.json") == 0o600


def test_second_agent_on_a_directory_is_refused_until_the_first_has_left(tmp_path: Path) -> None:
    with (
        locked(tmp_path),
        pytest.raises(Conflict, match=r"another agent \(process \d+\) runs on"),
        locked(tmp_path),
    ):
        pass
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"agent": "agt-1"}'])
def test_damaged_credential_says_what_to_do(tmp_path: Path, damaged: str) -> None:
    (tmp_path / "credential.json").write_text(damaged)
    with pytest.raises(UnusableDirectory, match="start the agent with a join token"):
        load_identity(tmp_path)


def test_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(UnusableDirectory, match="Not a directory"),
        locked(tmp_path / "file" / "agent"),
    ):
        pass


@pytest.mark.parametrize("mode", [0o770, 0o722, 0o777])
def test_directory_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    directory = tmp_path / "agent"
    directory.mkdir()
    directory.chmod(mode)

    with pytest.raises(UnusableDirectory, match="others may write"), locked(directory):
        pass


def test_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o700)
    (tmp_path / "agent").symlink_to("there")

    with pytest.raises(UnusableDirectory, match="symbolic link"), locked(tmp_path / "agent"):
        pass


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make others' directories")
def test_directory_that_somebody_else_planted_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "agent"
    directory.mkdir(mode=0o700)
    os.chown(directory, 4242, 4242)

    with pytest.raises(UnusableDirectory, match="belongs to another user"), locked(directory):
        pass


def test_directory_that_everybody_may_replace_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o777)

    with pytest.raises(UnusableDirectory, match="in its place"), locked(place / "agent"):
        pass
