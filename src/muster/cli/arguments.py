"""Arguments and options that several commands share, and the meaning of a REF."""

from dataclasses import dataclass
from typing import Annotated

import click

from muster.cli.completion import complete_any, complete_output
from muster.cli.parameters import Argument, Option


@dataclass(frozen=True, slots=True)
class Subject:
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


Ref = Annotated[
    str,
    Argument(
        metavar="REF", help="Job or session, or one task of it.", autocompletion=complete_output
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
AsJson = Annotated[bool, Option("--json", help="As JSON on stdout, and nothing else.")]
