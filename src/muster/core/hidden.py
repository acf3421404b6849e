"""Settings without the secrets that operators may have written into them, in place of a file's
name."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

HIDDEN = "…"
_SECRETS = (
    "token",
    "secret",
    "passw",
    "passphrase",
    "credential",
    "apikey",
    "api_key",
    "access_key",
    "private_key",
    "bearer",
)
"""Parts of names under which secrets stand."""
_PLACES = ("_file", "_path", "_name")
"""Ends of names that only say where one is."""
_VARIABLES = "environment"
"""A mapping of this name has variables, of which only the names are shown."""
_ENTRIES = "env"
"""A list of this name has variables, too: objects with ``name`` and ``value``."""


def without_secrets(value: Any, *, name: str = "", is_secret: bool = False) -> Any:
    """The value of a setting, with ``HIDDEN`` in place of all that is secret in it.

    Args:
        name: of the setting, which tells whether the value is a secret.
        is_secret: whether it is one whatever its name is.
    """
    if isinstance(value, Mapping):
        is_secret = is_secret or name == _VARIABLES
        return {
            str(key): without_secrets(
                each, name=str(key), is_secret=is_secret or _is_secret(str(key))
            )
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        if name == _ENTRIES and not is_secret:
            return [_entry(each) for each in value]
        if not is_secret and all(isinstance(each, str) for each in value):
            return [*_words(value)]
        return [without_secrets(each, is_secret=is_secret) for each in value]
    if is_secret and value not in (None, ""):
        return HIDDEN
    return " ".join(_words(value.split(" "))) if isinstance(value, str) else value


def _entry(variable: Any) -> Any:
    """A variable with its name, and without a value that is written here."""
    if isinstance(variable, Mapping):
        hidden = {"value": HIDDEN} if variable.get("value") else {}
        return {**without_secrets(variable), **hidden}
    return without_secrets(variable, is_secret=True)


def _words(words: Iterable[str]) -> Iterator[str]:
    """Words of a command line or a text: ``--token abc`` and ``TOKEN=abc`` without ``abc``."""
    is_next_secret = False
    for word in words:
        name, equals, _ = word.partition("=")
        if is_next_secret and word:
            yield HIDDEN
            is_next_secret = False
        elif " " in word:
            yield " ".join(_words(word.split(" ")))
        elif equals and _is_secret(name):
            yield f"{name}={HIDDEN}"
        else:
            is_option = word.startswith("-") or word.endswith(":") or word.lower() == "bearer"
            is_next_secret = is_option and _is_secret(word.strip("-:"))
            yield _without_login(word)


def _without_login(word: str) -> str:
    """A URL without the user and the password in it."""
    scheme, slashes, rest = word.partition("://")
    authority, slash, path = rest.partition("/")
    _, at, host = authority.rpartition("@")
    return f"{scheme}{slashes}{HIDDEN}@{host}{slash}{path}" if slashes and at else word


def _is_secret(name: str) -> bool:
    folded = name.lower().replace("-", "_")
    return any(each in folded for each in _SECRETS) and not folded.endswith(_PLACES)
