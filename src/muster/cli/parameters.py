"""Commands as typed functions: the annotations of their parameters say what a command line takes.

    def ps(target: Target, limit: Annotated[int, Option("--limit", min=1)] = 50) -> None: ...

A thin layer over click, which alone is quick to import: Typer imports pydantic with every command.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from enum import Enum, EnumMeta
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import click

R = TypeVar("R")

Complete = Callable[[click.Context, str], Sequence[tuple[str, str]]]
"""Offers values for what was typed so far, each with a word about it."""


class Argument:
    """A parameter that is known by its place."""

    def __init__(
        self,
        *,
        metavar: str | None = None,
        help: str | None = None,
        autocompletion: Complete | None = None,
    ) -> None:
        self.metavar = metavar
        self.help = help
        self.autocompletion = autocompletion


class Option:
    """A parameter that is known by its name.

    Args:
        flags: such as ``--limit`` and ``-n``.
        min, max: of a number.
        callback: checks the value, and gives the one that the command receives.
        is_eager: it is looked at before the others.
        show_default: False where ``help`` tells it.
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


def annotated(function: Callable[..., R]) -> Callable[..., R]:
    """Give a function the click parameters that its annotations describe, for ``click.command``.

    A parameter of type ``click.Context`` receives the context; of a list, what is not given is the
    default.
    """
    parameters = inspect.signature(function).parameters.values()
    contexts = [each.name for each in parameters if each.annotation is click.Context]
    described = [_parameter(each) for each in parameters if each.annotation is not click.Context]

    @functools.wraps(function)
    def with_context(**values: Any) -> R:
        return function(**dict.fromkeys(contexts, click.get_current_context()), **values)

    # Where click's own decorators leave what they describe, the last one first.
    with_context.__click_params__ = described[::-1]  # type: ignore[attr-defined]
    return with_context


def command_of(function: Callable[..., object] | click.Command) -> click.Command:
    """The command that a function is, if it is not one already."""
    if isinstance(function, click.Command):
        return function
    return click.command(function.__name__)(annotated(function))


def _parameter(parameter: inspect.Parameter) -> click.Parameter:
    """
    Raises:
        TypeError: its annotation describes no parameter of a command line.
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
        # Click takes a default of None, too, for a value that was given.
        **({} if required or many else {"default": default}),
    }
    if isinstance(described, Argument):
        nargs = -1 if many else 1
        return click.Argument([parameter.name], type=_type(type_), nargs=nargs, **common)
    flag = type_ is bool
    return click.Option(
        [*described.flags, parameter.name],
        type=None if flag else _type(type_, *described.range),
        is_flag=flag,
        multiple=many,
        envvar=described.envvar,
        is_eager=described.is_eager,
        show_default=described.show_default,
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
    if least is None and most is None:
        return type_
    if type_ is int:
        least, most = (None if each is None else int(each) for each in (least, most))
        return click.IntRange(least, most)
    return click.FloatRange(least, most)


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
