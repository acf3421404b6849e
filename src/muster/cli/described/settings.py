"""A provider's settings as they are shown: without the secrets that operators may have written into
them, in place of a file's name."""

import json
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


def settings_lines(settings: Mapping[str, Any]) -> list[str]:
    """The settings, each on a line: ``region: us-east-1``."""
    return [f"{name}: {_said(value)}" for name, value in _without_secrets(settings).items()]


def _said(value: Any) -> str:
    if isinstance(value, str) and value.isprintable():
        return value
    return json.dumps(value, ensure_ascii=False)


def _without_secrets(value: Any, *, is_secret: bool = False) -> Any:
    if isinstance(value, Mapping):
        return {
            str(name): _without_secrets(
                each, is_secret=is_secret or name == _VARIABLES or _is_secret(str(name))
            )
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        if not is_secret and all(isinstance(each, str) for each in value):
            return [*_words(value)]
        return [_without_secrets(each, is_secret=is_secret) for each in value]
    if is_secret and value not in (None, ""):
        return HIDDEN
    return " ".join(_words(value.split(" "))) if isinstance(value, str) else value


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
