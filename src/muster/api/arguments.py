"""The arguments of endpoints, read from requests as the signatures declare them.

The declarations are FastAPI's (`Query`, `Path`, `Header`, `Depends`), from which it makes the
description of the API too. They are compiled once; a request's values are converted by msgspec, all
at once. What msgspec does not take, pydantic looks at, one value after the other: it knows a few
more ways to write a value, and says what is wrong with it.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import annotated_types
import msgspec
from fastapi import params
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticUndefined
from starlette.requests import Request
from starlette.types import Receive, Scope

from muster.core.errors import InvalidSpec, Problem
from muster.core.specs.load import worded

_BOUNDS = {
    annotated_types.Ge: "ge",
    annotated_types.Gt: "gt",
    annotated_types.Le: "le",
    annotated_types.Lt: "lt",
    annotated_types.MinLen: "min_length",
    annotated_types.MaxLen: "max_length",
}
"""The bounds of values, with their names in msgspec."""
_PLAIN = re.compile(r"[0-9]{1,18}|true|false")
"""Numbers and truth values as all write them; about others msgspec and pydantic do not agree."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter whose value is in the URL or the headers.

    Args:
        name, alias: of the argument, and in the request.
        source: where the value is.
        declared: its type as pydantic takes it, with its bounds.
        converted: its type as msgspec takes it.
        is_plain: whether the value goes to msgspec only if it is written plainly.
        is_list: whether it is the list of all values that a query has by this name.
        default: msgspec.NODEFAULT where the request must have it.
    """

    name: str
    alias: str
    source: type[params.Param]
    declared: Any
    converted: Any
    is_plain: bool
    is_list: bool
    default: Any


@dataclass(slots=True)
class Incoming:
    """A request whose endpoint was found."""

    scope: Scope
    receive: Receive
    path: Mapping[str, str]
    _query: dict[str, str] | None = None
    _request: Request | None = None

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the URL's query; the last of several by one name."""
        if self._query is None:
            text = self.scope["query_string"].decode("latin-1")
            self._query = dict(parse_qsl(text, keep_blank_values=True)) if text else {}
        return self._query

    def all_of(self, name: str) -> list[str]:
        """All values that the URL's query has by a name."""
        text = self.scope["query_string"].decode("latin-1")
        return [value for key, value in parse_qsl(text, keep_blank_values=True) if key == name]

    @property
    def request(self) -> Request:
        if self._request is None:
            self._request = Request(self.scope, self.receive)
        return self._request

    def header(self, name: bytes) -> str | None:
        """The first value of a header; ``name`` in lower case."""
        for key, value in self.scope["headers"]:
            if key == name:
                found: bytes = value
                return found.decode("latin-1")
        return None


@dataclass(frozen=True)
class Arguments:
    """The parameters of a function: of an endpoint, or of one on which others depend.

    Args:
        function: is called with them.
        request: the name of the argument that is the whole request; None if there is none.
        parts: arguments that are the results of other functions.
        parameters: the arguments that are values of the request.
    """

    function: Callable[..., Any]
    request: str | None
    parts: Mapping[str, "Arguments"]
    parameters: tuple[Parameter, ...]
    _is_async: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_is_async", inspect.iscoroutinefunction(self.function))

    async def called(self, incoming: Incoming) -> Any:
        """The answer of the function to a request.

        Raises:
            InvalidSpec: with every value that is wrong; other errors are the function's.
        """
        arguments: dict[str, Any] = {}
        problems: list[Problem] = []
        for name, part in self.parts.items():
            try:
                arguments[name] = await part.called(incoming)
            except _WrongValues as wrong:
                problems += wrong.problems
        if self.parameters:
            try:
                arguments |= self._values(incoming)
            except _WrongValues as wrong:
                problems += wrong.problems
        if problems:
            raise _WrongValues(problems)
        if self.request is not None:
            arguments[self.request] = incoming.request
        found = self.function(**arguments)
        return await found if self._is_async else found

    def _values(self, incoming: Incoming) -> dict[str, Any]:
        given = self._given(incoming)
        for each in self.parameters:
            if each.is_plain and not _PLAIN.fullmatch(str(given.get(each.name, "1"))):
                return self._looked_at(given)
        try:
            struct = msgspec.convert(given, self._struct, strict=False)
        except msgspec.ValidationError:
            return self._looked_at(given)
        return {each.name: getattr(struct, each.name) for each in self.parameters}

    def _given(self, incoming: Incoming) -> dict[str, str | list[str]]:
        """The values that the request has, by the names of the arguments."""
        given: dict[str, str | list[str]] = {}
        for each in self.parameters:
            value: str | list[str] | None
            if each.is_list:
                value = incoming.all_of(each.alias) or None
            elif each.source is params.Path:
                value = incoming.path[each.alias]
            elif each.source is params.Query:
                value = incoming.query.get(each.alias)
            else:
                value = incoming.header(each.alias.encode())
            if value is not None:
                given[each.name] = value
        return given

    @cached_property
    def _struct(self) -> type[msgspec.Struct]:
        fields = [(each.name, each.converted, each.default) for each in self.parameters]
        return msgspec.defstruct("Arguments", fields, kw_only=True)

    @cached_property
    def _adapters(self) -> Mapping[str, TypeAdapter[Any]]:
        return {each.name: TypeAdapter(each.declared) for each in self.parameters}

    def _looked_at(self, given: Mapping[str, str | list[str]]) -> dict[str, Any]:
        """
        Raises:
            InvalidSpec: with every value that is wrong.
        """
        values: dict[str, Any] = {}
        problems: list[Problem] = []
        for each in self.parameters:
            if each.name not in given:
                if each.default is msgspec.NODEFAULT:
                    problems.append(Problem(each.alias, "", "missing, and it has no default"))
                values[each.name] = each.default
                continue
            try:
                values[each.name] = self._adapters[each.name].validate_python(given[each.name])
            except ValidationError as error:
                shown = repr(given[each.name])[:80]
                problems += [
                    Problem(each.alias, shown, worded(detail)) for detail in error.errors()
                ]
        if problems:
            raise _WrongValues(problems)
        return values


class _WrongValues(InvalidSpec):
    """Values of parameters that are wrong."""


def arguments_of(function: Callable[..., Any], path: Iterable[str]) -> Arguments:
    """The arguments of a function.

    Args:
        path: the names of the parts of the path that vary.
    """
    names = frozenset(path)
    hints = get_type_hints(function, include_extras=True)
    request: str | None = None
    parts: dict[str, Arguments] = {}
    parameters: list[Parameter] = []
    for name, declared in inspect.signature(function).parameters.items():
        hint = hints[name]
        if hint is Request:
            request = name
        elif (depends := _declaration(hint, params.Depends)) is not None:
            parts[name] = arguments_of(depends.dependency, names)
        else:
            parameters.append(_parameter(name, hint, declared.default, names))
    return Arguments(function, request, parts, tuple(parameters))


def _declaration(hint: Any, kind: type[Any]) -> Any:
    """The part of an annotation that is of this kind; None if it has none."""
    if get_origin(hint) is not Annotated:
        return None
    return next((each for each in get_args(hint)[1:] if isinstance(each, kind)), None)


def _parameter(name: str, hint: Any, default: Any, path: frozenset[str]) -> Parameter:
    """A parameter as FastAPI takes the same declaration."""
    own = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    declared: params.Param | None = _declaration(hint, params.Param)
    source: type[params.Param] = params.Query if declared is None else type(declared)
    if name in path:
        source = params.Path
    alias = (declared and declared.alias) or name
    if source is params.Header:
        alias = alias.replace("_", "-")
    bounds = [] if declared is None else declared.metadata
    members = [each for each in get_args(own) if each is not NoneType]
    is_optional = get_origin(own) in (Union, UnionType)
    # A value of the request is never None, and would be where it reads "null".
    converted = members[0] if is_optional else own
    limits = {_BOUNDS[type(each)]: getattr(each, _BOUNDS[type(each)]) for each in bounds}
    if default in (inspect.Parameter.empty, PydanticUndefined):
        default = msgspec.NODEFAULT
    return Parameter(
        name,
        alias,
        source,
        Annotated[own, *bounds] if bounds else own,
        Annotated[converted, msgspec.Meta(**limits)] if limits else converted,
        converted in (int, bool),
        get_origin(converted) is list,
        default,
    )
