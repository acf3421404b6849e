"""Modules of a package, and the objects that they declare, found by the folder in which they lie.

They are found as Python's import finds them (``pkgutil``), so in a zip file too."""

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def names_of(package: ModuleType) -> list[str]:
    """The names of the modules of a package, in their order; none is imported."""
    return sorted(each.name for each in iter_modules(package.__path__))


def modules_of(package: ModuleType, prefix: str = "") -> list[ModuleType]:
    """The modules of a package whose names begin with ``prefix``, imported, in the order of their
    names."""
    names = (name for name in names_of(package) if name.startswith(prefix))
    return [import_module(f"{package.__name__}.{name}") for name in names]


def module_of_each_folder(package: ModuleType, name: str) -> dict[str, ModuleType]:
    """The module of this name in each folder of a package that has one, imported, by the name of
    the folder."""
    folders = sorted(each.name for each in iter_modules(package.__path__) if each.ispkg)
    paths = {folder: f"{package.__name__}.{folder}.{name}" for folder in folders}
    found = {folder: path for folder, path in paths.items() if find_spec(path) is not None}
    return {folder: import_module(path) for folder, path in found.items()}


def objects_of(modules: Iterable[ModuleType], kind: type[T]) -> list[T]:
    """The objects of a class that the modules have as attributes, each once."""
    found = [each for module in modules for each in vars(module).values()]
    objects = {id(each): each for each in found if isinstance(each, kind)}
    return list(objects.values())


def classes_of(modules: Iterable[ModuleType], base: type[T]) -> list[type[T]]:
    """The classes derived from ``base`` that the modules have as attributes, each once."""
    return [each for each in objects_of(modules, type) if issubclass(each, base) and each != base]
