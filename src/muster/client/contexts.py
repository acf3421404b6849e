"""The clusters that a person has logged in to, in one file, mode 0600.

``$XDG_CONFIG_HOME/muster/contexts.json`` (``~/.config`` by default) holds for each context its URL,
its token and the file of its authority, and it names the current context.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import msgspec

from muster.client.errors import NoConnection
from muster.core.errors import InvalidSpec, NotFound, Problem

LOCAL = "local"
"""The name that stands for no context, but for the cluster of this machine."""
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
MAX_CA_BYTES = 2**20


class NamedCluster(msgspec.Struct, frozen=True):
    """One cluster, and the person's token there."""

    url: str
    token: str
    ca: str | None = None

    def __repr__(self) -> str:
        return f"NamedCluster(url={self.url!r}, ca={self.ca!r})"  # without the token


class Contexts(msgspec.Struct, frozen=True):
    """All contexts by name; ``current`` is None for the cluster of this machine."""

    current: str | None = None
    contexts: dict[str, NamedCluster] = {}

    @property
    def chosen(self) -> NamedCluster | None:
        return self.contexts.get(self.current) if self.current else None

    def switched(self, name: str | None) -> Contexts:
        """
        Raises:
            NotFound: there is no such context.
        """
        if name == LOCAL:
            name = None
        if name is not None and name not in self.contexts:
            known = ", ".join((LOCAL, *sorted(self.contexts)))
            raise NotFound(f"there is no context {name!r}: you have {known}")
        return msgspec.structs.replace(self, current=name)

    def added(self, name: str, context: NamedCluster) -> Contexts:
        """The contexts with this one, which is the current one then."""
        return Contexts(name, {**self.contexts, name: context})

    def removed(self, name: str) -> Contexts:
        left = {each: found for each, found in self.contexts.items() if each != name}
        return Contexts(None if self.current == name else self.current, left)


def check_name(name: str) -> str:
    """
    Raises:
        InvalidSpec: no context can have this name.
    """
    if name == LOCAL or not re.fullmatch(_NAME, name):
        expected = f"expected at most 63 letters, digits, . _ -, and not {LOCAL!r}"
        raise InvalidSpec([Problem("context", repr(name), expected)])
    return name


def directory() -> Path:
    """The directory of a person's settings."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".config") / "muster"


def read_contexts() -> Contexts:
    """
    Raises:
        NoConnection: the file cannot be read, or is damaged.
    """
    path = directory() / "contexts.json"
    try:
        found = msgspec.json.decode(path.read_text())
        contexts = {name: NamedCluster(**fields) for name, fields in found["contexts"].items()}
        return Contexts(found["current"], contexts)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise NoConnection(f"cannot read {path}: {error.strerror}") from None
    except (msgspec.DecodeError, ValueError, KeyError, TypeError, AttributeError):
        raise NoConnection(f"{path} is damaged: remove it, and log in again") from None


def write_contexts(contexts: Contexts) -> None:
    """Write the contexts, for this person only.

    Raises:
        NoConnection: they cannot be written.
    """
    import json

    text = json.dumps({"current": contexts.current, "contexts": _as_json(contexts)}, indent=2)
    _write(directory() / "contexts.json", text.encode())


def keep_authority(name: str, ca: Path) -> Path:
    """Copy an authority's certificate to the settings of a context, so that it stays.

    Raises:
        NoConnection: it cannot be read or written.
    """
    try:
        with ca.open("rb") as file:
            data = file.read(MAX_CA_BYTES)
    except OSError as error:
        raise NoConnection(f"cannot read the certificate {ca}: {error.strerror}") from None
    kept = directory() / f"{name}.ca.pem"
    _write(kept, data)
    return kept


def forget_authority(name: str) -> None:
    with suppress(OSError):
        (directory() / f"{name}.ca.pem").unlink()


def _as_json(contexts: Contexts) -> dict[str, dict[str, str | None]]:
    return {name: msgspec.structs.asdict(each) for name, each in contexts.contexts.items()}


def _write(path: Path, data: bytes) -> None:
    """Write a file for its owner only, whole or not at all."""
    from muster.files import make_directory, write_whole

    try:
        make_directory(path.parent)
        write_whole(path, data)
    except OSError as error:
        raise NoConnection(f"cannot write {path}: {error.strerror}") from None
