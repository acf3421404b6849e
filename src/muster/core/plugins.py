"""Classes that are found by name: those that come along, and plug-ins of entry points."""

import difflib
import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Generic, TypeVar, cast

from muster.core.errors import InvalidSpec, Problem

T = TypeVar("T")


class Plugins(Generic[T]):
    """The classes of one kind. Modules are imported once their class is wanted.

    Args:
        kind: in a word, for people: the field in which a spec names one.
        group: of the entry points.
        base: the class from which each derives.
        builtin: "module:class" of those that come along, by name.
        extras: the extra of the distribution that brings the library of one that comes along.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        base: type,
        builtin: Mapping[str, str],
        extras: Mapping[str, str] | None = None,
    ) -> None:
        self._kind = kind
        self._group = group
        self._base = base
        self._builtin = builtin
        self._extras = extras or {}

    def names(self) -> list[str]:
        """All names, in alphabetical order."""
        return sorted({*self._builtin, *entry_points(group=self._group).names})

    def named(self, name: str) -> type[T]:
        """The class of this name.

        Raises:
            InvalidSpec: there is none, or it cannot be loaded.
        """
        if name not in self.names():
            expected = f"expected one of {', '.join(self.names())}{self._nearest(name)}"
            raise self._refused(name, expected)
        try:
            found = self._load(name)
        except Exception as error:  # a plug-in's module may raise anything
            if isinstance(error, ModuleNotFoundError) and name in self._extras:
                extra = self._extras[name]
                expected = f"needs `pip install 'muster-scheduler[{extra}]'` on the controller"
            else:
                expected = f"cannot be loaded: {error}"[:300]
            raise self._refused(name, expected) from error
        if not (isinstance(found, type) and issubclass(found, self._base)):
            expected = f"is no {self._kind}: expected a class derived from {self._base.__name__}"
            raise self._refused(name, expected)
        return cast(type[T], found)

    def _load(self, name: str) -> object:
        if name not in self._builtin:
            found: object = entry_points(group=self._group)[name].load()
            return found
        module, _, attribute = self._builtin[name].partition(":")
        return vars(importlib.import_module(module))[attribute]

    def _nearest(self, name: str) -> str:
        close = difflib.get_close_matches(name, self.names(), n=1)
        return f"; did you mean {close[0]}?" if close else ""

    def _refused(self, name: str, expected: str) -> InvalidSpec:
        return InvalidSpec([Problem(self._kind, repr(name), expected)])
