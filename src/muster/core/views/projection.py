"""Views of records: what a view has by the same name as a record, a row or a value, it takes from
there."""

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

from muster.core.owner import Owner
from muster.core.reasons import Reason
from muster.core.resources import Resources
from muster.core.views.base import OwnerView, ReasonView, ResourcesView, View

V = TypeVar("V", bound=View)
_SHOWN: Mapping[type, Callable[[Any], Any]] = {
    Owner: OwnerView.of,
    Resources: ResourcesView.of,
}


def view_of(kind: type[V], source: object, **given: Any) -> V:
    """A view of something: each field that is not given is its attribute of the same name. Owners,
    reasons, amounts, and values of which the view has a view, alone or several, are shown as such.
    What the source does not know has the view's default.

    Args:
        source: a record, a row of its table, or any value with such attributes.

    Raises:
        AttributeError: the source lacks a field that is not given and has no default.
    """
    # The rows of all statements are of one type, and tell their columns.
    key = kind, getattr(source, "_fields", type(source)), tuple(given)
    make = _MADE.get(key)
    if make is None:
        make = _MADE[key] = _maker(kind, source, given)
    made: V = make(source, **given)
    return made


_MADE: dict[tuple[Any, ...], Callable[..., Any]] = {}


def _maker(kind: type[View], source: object, given: Collection[str]) -> Callable[..., Any]:
    """The function that makes such views of such sources. It is written as a text, as the methods
    of dataclasses are: lists have thousands of views."""
    known: dict[str, Any] = {"kind": kind}
    values = []
    for field in msgspec.structs.fields(kind):
        if field.name in given:
            values.append(f"{field.name}={field.name}")
            continue
        if not field.required and not hasattr(source, field.name):
            continue
        value, show = f"source.{field.name}", _how(field.type)
        if show is not None:
            known[f"show_{field.name}"] = show
            value = f"show_{field.name}({value})"
        values.append(f"{field.name}={value}")
    text = f"lambda {', '.join(['source', *given])}: kind({', '.join(values)})"
    make: Callable[..., Any] = eval(text, known)
    return make


def _how(type_: Any) -> Callable[[Any], Any] | None:
    """How a value is shown for a field of this type; None as it is."""
    parts = get_args(type_)
    if get_origin(type_) in (Union, UnionType):
        (first, *others) = (each for each in parts if each is not NoneType)
        show = None if others else _how(first)
        return None if show is None else lambda value: None if value is None else show(value)
    if get_origin(type_) is tuple:
        each = _how(parts[0])
        return None if each is None else lambda values: tuple(map(each, values))
    if isinstance(type_, type) and issubclass(type_, View):
        return lambda value: _shown(type_, value)
    if isinstance(type_, type) and issubclass(type_, Enum):
        return type_  # a row has a text
    return None


def _shown(kind: type[View], value: Any) -> View:
    if isinstance(value, Reason):
        return ReasonView.of(value)
    show = _SHOWN.get(type(value))
    return view_of(kind, value) if show is None else show(value)
