"""Settings of a cluster, and what is told of their changes.

A setting has no life of its own, as a record has: it is there or not, and says something (design:
What an entity is). History knows it as ``kind:name``.
"""

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from muster.core.hidden import HIDDEN, without_secrets

SETTING_PHASE = "Setting"
"""The phase in history of everything by which somebody changed a setting, or a pool."""
MAX_CHANGES = 50
"""Keys of one change that are told."""
MAX_TOLD = 200
"""Characters of a value that are told."""


class SettingKind(StrEnum):
    """The kinds of settings, in the order in which a name is looked for."""

    GROUP = "group"
    USER = "user"
    PROJECT = "project"
    QUOTA = "quota"
    DOMAIN = "domain"
    TOKEN = "token"
    JOIN_TOKEN = "join-token"


class SettingChange(StrEnum):
    """The ways in which a setting changes."""

    ADDED = "ADDED"
    CHANGED = "CHANGED"
    REMOVED = "REMOVED"


class SettingName(NamedTuple):
    """The name of a setting: of a group, ``domain``, ``domain/project``, ``domain/user``, of a
    quota the name of whom it limits, and of a token its id."""

    kind: SettingKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @staticmethod
    def of(text: str) -> "SettingName | None":
        """The setting that history calls so; None if it is the name of a record."""
        kind, colon, name = text.partition(":")
        return SettingName(SettingKind(kind), name) if colon and kind in _KINDS else None


_KINDS = frozenset(SettingKind)

Difference: TypeAlias = tuple[str, str | None, str | None]
"""A key of a setting, with what it said before and what it says now; None is nothing."""


def differences(
    before: Mapping[str, object], after: Mapping[str, object]
) -> tuple[Difference, ...]:
    """The keys in which two forms of a setting differ, by their dotted paths, without secrets.

    At most ``MAX_CHANGES`` keys are told; a last one then counts the others.
    """
    was, is_ = dict(_leaves(before)), dict(_leaves(after))
    shown_was = dict(_leaves(without_secrets(before)))
    shown_is = dict(_leaves(without_secrets(after)))
    keys = [key for key in {**was, **is_} if was.get(key) != is_.get(key)]
    found = [(key, _told(shown_was.get(key)), _told(shown_is.get(key))) for key in keys]
    if len(found) > MAX_CHANGES:
        left_out = len(found) - MAX_CHANGES
        found[MAX_CHANGES:] = [(f"{left_out} others", HIDDEN, HIDDEN)]
    return tuple(found)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The values in nested mappings, by their dotted paths; None and empty values are left out."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _leaves(each, f"{path}.{key}" if path else str(key))
    elif value is not None and value != [] and value != ():
        yield path, value


def _told(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= MAX_TOLD else shown[: MAX_TOLD - 1] + "…"


def difference_said(key: str, before: str | None, after: str | None) -> str:
    """One of ``differences`` for people: ``limits.gpu: 8 → 10``."""
    if before is None:
        return f"{key}: {after}"
    return f"{key}: {before} → {'none' if after is None else after}"
