"""Arguments and options that several commands share, and the meaning of a REF."""

from typing import TYPE_CHECKING, Annotated, Any

import click
import msgspec

from muster.cli import kinds
from muster.cli.completion import complete_any, complete_group, complete_output
from muster.cli.parameters import Argument, Option
from muster.cli.words import one
from muster.core.errors import NotFound

if TYPE_CHECKING:
    from muster.cli.kinds.kind import Kind
    from muster.core.views.base import RecordView


class Subject(msgspec.Struct, frozen=True):
    """The record that a REF names, by its id, the beginning of its id, or its name.

    ``index`` is the task of a job, or the kernel of a session, when the REF has one.
    """

    ref: str
    index: int | None


def parse_ref(text: str) -> Subject:
    """``train-1``, ``01jd2x8k``, ``train-1/3``, ``ses-01jd2x8k``.

    Raises:
        click.BadParameter: no number follows the slash, or nothing stands before it.
    """
    ref, slash, index = text.partition("/")
    if not ref or (slash and not (index.isascii() and index.isdecimal())):
        raise click.BadParameter(
            f"{text!r} is not a REF: expected a name or an id, and after a slash a task's number"
        )
    return Subject(ref, int(index) if slash else None)


def seconds_of(option: str, text: str) -> float:
    """The duration that an option was given: ``90``, ``5m``, ``1h30m``.

    Raises:
        click.BadParameter: it is none.
    """
    from muster.core.specs.amounts import parse_duration

    try:
        return float(parse_duration(text))
    except ValueError as error:
        raise click.BadParameter(f"{option} is {text!r}: {error}") from None


def kind_of(found: "RecordView", subject: Subject) -> "Kind[Any, Any]":
    """The kind of the record that was found for a REF.

    Raises:
        NotFound: the REF has an index, and records of this kind have no tasks or kernels.
    """
    kind = kinds.of_record(found)
    if subject.index is not None and not kind.has_parts:
        raise NotFound(f"{one(kind.name)} has no task {subject.index}: leave out the number")
    return kind


Ref = Annotated[
    str,
    Argument(
        metavar="REF",
        help="Job, one task of it, session, or replica.",
        autocompletion=complete_output,
    ),
]
AnyRef = Annotated[
    str,
    Argument(
        metavar="REF",
        help="Record of any kind, such as a job, an agent or a notice; or one task of a job.",
        autocompletion=complete_any,
    ),
]
InGroup = Annotated[
    str | None,
    Option("--group", "-g", help="Show only this group's.", autocompletion=complete_group),
]
AsJson = Annotated[bool, Option("--json", help="Print JSON on stdout, and nothing else.")]
