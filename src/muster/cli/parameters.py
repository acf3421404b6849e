"""Commands as typed functions: the annotations of their parameters describe the command line.

    def ps(cluster: Cluster, limit: Annotated[int, Option("--limit", min=1)] = 50) -> None: ...

Options that belong together, or to several commands, are the fields of a dataclass: a parameter of
its type takes all of them.

This is a thin layer over click, which is quick to import: Typer imports pydantic with every
command.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from enum import Enum, EnumMeta
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import click
from click.core import ParameterSource

from muster.core.errors import InvalidSpec, Problem

R = TypeVar("R")

Complete = Callable[[click.Context, str], Sequence[tuple[str, str]]]
"""Offers values that begin with the typed text, each with a word of explanation."""


class Argument:
    """A positional parameter.

    Args:
        holds_spec: whether it is the file of the spec that the command hands in; ``-`` is standard
            input.
    """

    def __init__(
        self,
        *,
        metavar: str | None = None,
        help: str | None = None,
        autocompletion: Complete | None = None,
        holds_spec: bool = False,
    ) -> None:
        self.metavar = metavar
        self.help = help
        self.autocompletion = autocompletion
        self.holds_spec = holds_spec


class Option:
    """A named parameter.

    Args:
        flags: such as ``--limit`` and ``-n``.
        min, max: of a number.
        callback: checks the value, and returns the value for the command.
        is_eager: whether it is processed before other options.
        show_default: False where ``help`` tells the default.
        field: the field of the request that the value becomes, if its name is not the parameter's.
    """

    def __init__(
        self,
        *flags: str,
        metavar: str | None = None,
        help: str | None = None,
        min: float | None = None,
        max: float | None = None,
        envvar: str | None = None,
        callback: Callable[[Any], Any] | None = None,
        is_eager: bool = False,
        show_default: bool = True,
        autocompletion: Complete | None = None,
        field: str | None = None,
    ) -> None:
        self.flags = flags
        self.metavar = metavar
        self.help = help
        self.range = (min, max)
        self.envvar = envvar
        self.callback = callback
        self.is_eager = is_eager
        self.show_default = show_default
        self.autocompletion = autocompletion
        self.field = field


def annotated(function: Callable[..., R]) -> Callable[..., R]:
    """Give a function the click parameters that its annotations describe, for ``click.command``.

    A parameter of type ``click.Context`` receives the context, a parameter of a dataclass the
    options that its fields describe. A list that is not given is the default.
    """
    parameters = inspect.signature(function).parameters.values()
    contexts = [each.name for each in parameters if each.annotation is click.Context]
    groups: dict[str, Any] = {
        each.name: each.annotation for each in parameters if is_dataclass(each.annotation)
    }
    described = [
        _parameter(option)
        for each in parameters
        if each.annotation is not click.Context
        for option in _options_of(each)
    ]

    @functools.wraps(function)
    def with_context(**values: Any) -> R:
        for name, group in groups.items():
            values[name] = group(**{each.name: values.pop(each.name) for each in fields(group)})
        with naming_options():
            return function(**dict.fromkeys(contexts, click.get_current_context()), **values)

    # Click's own decorators leave their parameters here, the last one first.
    with_context.__click_params__ = described[::-1]  # type: ignore[attr-defined]
    return with_context


def command_of(function: Callable[..., object] | click.Command) -> click.Command:
    """The command that a function is, if it is not one already."""
    if isinstance(function, click.Command):
        return function
    return click.command(function.__name__)(annotated(function))


def _options_of(parameter: inspect.Parameter) -> Iterable[inspect.Parameter]:
    group: Any = parameter.annotation
    if is_dataclass(parameter.annotation):
        return inspect.signature(group).parameters.values()
    return (parameter,)


@contextmanager
def naming_options() -> Iterator[None]:
    """Replace fields by options in refusals, and name the file of fields that are in one: the
    controller knows the fields of the request, the person the options and the file that were
    typed."""
    try:
        yield
    except InvalidSpec as error:
        context = click.get_current_context()
        raise InvalidSpec([_by_option(each, context) for each in error.problems]) from None


def _by_option(problem: Problem, context: click.Context) -> Problem:
    for option in context.command.params:
        if isinstance(option, _FieldOption) and option.fills(problem.field):
            source = context.get_parameter_source(option.name or "")
            if source is ParameterSource.COMMANDLINE:
                return replace(problem, field=max(option.opts, key=len))
    for argument in context.command.params:
        file = context.params.get(argument.name or "")
        if isinstance(argument, _SpecArgument) and file not in (None, "-"):
            return replace(problem, field=f"{file}: {problem.field}")
    return problem


class _SpecArgument(click.Argument):
    """The file of the spec that a command hands in."""


class _FieldOption(click.Option):
    """An option that knows which ``field`` of a request its value becomes."""

    def __init__(self, *args: Any, field: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.field = field

    def fills(self, field: str) -> bool:
        """Whether a value of the option became this field, or one in it if it may be repeated."""
        return field == self.field or (self.multiple and field.startswith(f"{self.field}."))


def _parameter(parameter: inspect.Parameter) -> click.Parameter:
    """
    Raises:
        TypeError: the annotation describes no parameter of a command line.
    """
    if get_origin(parameter.annotation) is not Annotated:
        raise TypeError(f"parameter {parameter.name} has no Option or Argument")
    type_, described, *_ = get_args(parameter.annotation)
    if get_origin(type_) in (Union, UnionType):
        (type_,) = (each for each in get_args(type_) if each is not NoneType)
    many = get_origin(type_) is list
    if many:
        (type_,) = get_args(type_)
    required = parameter.default is inspect.Parameter.empty
    default = None if required else parameter.default
    callback = described.callback if isinstance(described, Option) else None
    common: dict[str, Any] = {
        "metavar": described.metavar,
        "help": described.help,
        "required": required,
        "shell_complete": _completing(described.autocompletion),
        "callback": functools.partial(_received, default, many, callback),
        # Click takes even a default of None for a value that was given.
        **({} if required or many else {"default": default}),
    }
    if isinstance(described, Argument):
        nargs = -1 if many else 1
        kind = _SpecArgument if described.holds_spec else click.Argument
        return kind([parameter.name], type=_type(type_), nargs=nargs, **common)
    flag = type_ is bool
    show_default: bool | str = described.show_default
    if isinstance(default, Enum) and show_default:
        show_default = str(default.value)
    return _FieldOption(
        [*described.flags, parameter.name],
        field=described.field or parameter.name,
        type=None if flag else _type(type_, *described.range),
        is_flag=flag,
        multiple=many,
        envvar=described.envvar,
        is_eager=described.is_eager,
        show_default=show_default,
        **common,
    )


def _received(
    default: Any,
    many: bool,
    callback: Callable[[Any], Any] | None,
    _context: click.Context,
    _parameter: click.Parameter,
    value: Any,
) -> Any:
    """The value that the command receives."""
    if many:
        value = list(value) if value else default
    return value if callback is None else callback(value)


def _type(
    type_: type, least: float | None = None, most: float | None = None
) -> click.ParamType[Any] | type:
    if isinstance(type_, EnumMeta):
        return _ByValue(type_)
    if issubclass(type_, Path):
        return click.Path(path_type=Path)
    if type_ is int:
        if least is None and most is None:
            return _Whole()
        low, high = (None if each is None else int(each) for each in (least, most))
        return _WholeRange(low, high)
    if type_ is float:
        return _Fraction() if least is None and most is None else _FractionRange(least, most)
    return type_


class _Number(click.ParamType[Any]):
    """Says what is expected where a number is not one, or out of its range: click words that for
    programmers."""

    noun = "a number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            number = super().convert(value, param, ctx)
            if number == number:  # no NaN, which is in every range
                return number
        except click.BadParameter:
            pass
        bounds = _bounds(getattr(self, "min", None), getattr(self, "max", None))
        self.fail(f"expected {self.noun}{bounds}, not {str(value)[:80]!r}", param, ctx)


def _bounds(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f" from {least:,g} to {most:,g}"
    if least is not None:
        return f" of at least {least:,g}"
    return f" of at most {most:,g}" if most is not None else ""


class _Whole(_Number, click.types.IntParamType):
    noun = "a whole number"


class _WholeRange(_Number, click.IntRange):
    noun = "a whole number"


class _Fraction(_Number, click.types.FloatParamType):
    pass


class _FractionRange(_Number, click.FloatRange):
    pass


class _ByValue(click.Choice[Any]):
    """One of an enumeration, named by its value."""

    def normalize_choice(self, choice: Any, ctx: click.Context | None) -> str:
        return str(choice.value if isinstance(choice, Enum) else choice)


def _completing(complete: Complete | None) -> Callable[..., list[Any]] | None:
    if complete is None:
        return None

    def offered(context: click.Context, _parameter: click.Parameter, typed: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(value, help=said) for value, said in complete(context, typed)]

    return offered
