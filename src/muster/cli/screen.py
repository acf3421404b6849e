"""The two streams: tables and JSON on stdout; status, questions and errors on stderr.

Without a terminal there are no control codes and nothing is cut to a width. Rich honours NO_COLOR
and TERM=dumb by itself.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from muster.core.states.task import COLOURS, TaskState

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T")

UNCUT = 100_000
"""The width of what is no terminal: wide enough that nothing is cut or wrapped."""

_STYLES = {state.value: colour for state, colour in COLOURS.items()} | {
    "ALIVE": COLOURS[TaskState.SUCCEEDED],
    "UNREACHABLE": COLOURS[TaskState.PENDING],
    "LOST": COLOURS[TaskState.FAILED],
    "REMOVED": COLOURS[TaskState.KILLED],
}


def stdout() -> Console:
    return _console(stderr=False)


def stderr() -> Console:
    return _console(stderr=True)


def _console(stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else UNCUT
    return Console(stderr=stderr, width=width, highlight=False, emoji=False, soft_wrap=False)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table, in characters of the terminal.

    Args:
        flexible: it takes the width that is left.
        from_width: the narrowest terminal that shows it.
        max_width: longer values are cut.
    """

    name: str
    right: bool = False
    flexible: bool = False
    from_width: int = 0
    max_width: int | None = None


def table(
    console: Console, columns: Sequence[Column], rows: Iterable[Sequence[Text | str]]
) -> Table:
    """Rows of one line each; on a terminal the flexible column is cut to fit."""
    shown = [index for index, column in enumerate(columns) if column.from_width <= console.width]
    fits = console.width < UNCUT and any(columns[index].flexible for index in shown)
    grid = Table(box=None, expand=fits, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index in shown:
        column = columns[index]
        grid.add_column(
            column.name,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if fits and column.flexible else None,
            max_width=column.max_width if fits else None,
        )
    for row in rows:
        grid.add_row(*(_cell(row[index]) for index in shown))
    return grid


def _cell(value: Text | str) -> Text:
    # Names and reasons are other people's text: never markup, never more than a line.
    return value if isinstance(value, Text) else Text(" ".join(plain(value).split("\n")))


def plain(text: str) -> str:
    """Text that somebody else wrote, without what a terminal would take as a command."""
    return "".join(
        each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in text
    )


def status(state: str) -> Text:
    """A state in the colour of the reference (iris-task-states, "Dashboard Display")."""
    return Text(state.lower().replace("_", " "), style=_STYLES.get(state, ""))


def fields(pairs: Iterable[tuple[str, RenderableType | None]]) -> RenderableType:
    """Names and values under each other; a value of None is left out."""
    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None:
            grid.add_row(name, Text(plain(value)) if isinstance(value, str) else value)
    return grid


def indented(renderable: RenderableType) -> Padding:
    return Padding(renderable, (0, 0, 0, 2))


def print_json(value: "BaseModel | Sequence[BaseModel]") -> None:
    """What the client returned, as JSON on stdout and nothing else."""
    if isinstance(value, Sequence):
        document: object = [each.model_dump(mode="json") for each in value]
    else:
        document = value.model_dump(mode="json")
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
