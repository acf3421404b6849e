"""The agent's identity: its directory, locked while it runs, and the credential kept in it."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from muster.agent.supervisor import lock_file
from muster.core.errors import Conflict, MusterError
from muster.core.ids import AgentId
from muster.files import NotOwn, check_own, make_directory, write_whole

CREDENTIAL_FILE = "credential.json"
LOCK_FILE = "agent.lock"
AGENT_LOG = "agent.log"
"""The words of an agent that was started in the background."""


class UnusableDirectory(MusterError):
    """The agent's directory cannot be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """An agent's id and the secret that proves it.

    ``agent`` is empty until the controller has answered the first contact: the secret is kept
    before it is sent, so that an agent without an answer can ask again. ``name`` and ``group`` are
    those with which it has joined; empty where that is not known.
    """

    agent: AgentId
    credential: str
    name: str = ""
    group: str = ""

    @property
    def has_joined(self) -> bool:
        """Whether a controller has answered, so that no join token is needed."""
        return bool(self.agent)


def require_own(directory: Path) -> None:
    """
    Raises:
        UnusableDirectory: others may have put something into the directory, or could replace it.
        OSError: it cannot be looked at.
    """
    try:
        check_own(directory)
    except NotOwn as error:
        raise UnusableDirectory(f"cannot use {directory} for an agent: {error}") from None


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Make ``directory`` (for its owner only) and lock it, so that no other agent uses it.

    Raises:
        Conflict: another agent runs on it.
        UnusableDirectory: the directory cannot be made or written, or others could have put
            something into it.
    """
    try:
        with suppress(FileNotFoundError):
            require_own(directory)
        make_directory(directory)
        require_own(directory)
        directory.chmod(0o700)  # it may have existed
        lock = lock_file.take(directory / LOCK_FILE)
    except lock_file.Taken as taken:
        raise Conflict(
            f"another agent (process {taken.holder or 'unknown'}) runs on {directory}; stop it, or "
            f"choose another directory"
        ) from None
    except OSError as error:
        raise UnusableDirectory(f"cannot use {directory} for an agent: {error.strerror}") from None
    try:
        yield
    finally:
        os.close(lock)


def load_identity(directory: Path) -> AgentIdentity | None:
    """The identity kept in ``directory``; None before the first contact.

    Raises:
        UnusableDirectory: the identity cannot be read.
    """
    path = directory / CREDENTIAL_FILE
    try:
        kept = json.loads(path.read_text())
        name, group = str(kept.get("name", "")), str(kept.get("group", ""))
        return AgentIdentity(AgentId(str(kept["agent"])), str(kept["credential"]), name, group)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnusableDirectory(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UnusableDirectory(
            f"{path} is damaged; remove it and start the agent with a join token"
        ) from None


def identities_in(directories: Iterable[Path]) -> dict[AgentId, Path]:
    """The agents of these directories; one that never joined, or cannot be read, is left out."""
    found: dict[AgentId, Path] = {}
    for directory in directories:
        with suppress(UnusableDirectory):
            identity = load_identity(directory)
            if identity is not None and identity.agent:
                found[identity.agent] = directory
    return found


def save_identity(directory: Path, identity: AgentIdentity) -> None:
    """Write an identity, readable by its owner only, whole or not at all.

    Raises:
        UnusableDirectory: the identity cannot be written.
    """
    path = directory / CREDENTIAL_FILE
    text = json.dumps(asdict(identity))
    try:
        write_whole(path, text)
    except OSError as error:
        raise UnusableDirectory(f"cannot write {path}: {error.strerror}") from None
