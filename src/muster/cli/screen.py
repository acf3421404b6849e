"""Drawing with rich: tables on stdout; status and questions on stderr.

Without a terminal there are no control codes and nothing is cut to a width. Rich honours NO_COLOR
and TERM=dumb by itself.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from rich.console import (
    Console,
    ConsoleOptions,
    ConsoleRenderable,
    Group,
    RenderableType,
    RenderHook,
)
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from muster.cli.streams import plain, print_json
from muster.core.states.task import COLOURS, TaskState
from muster.core.text import printable

if TYPE_CHECKING:
    from muster.core.views.base import View

V = TypeVar("V", bound="View")

UNCUT = 100_000
"""The width without a terminal: so wide that nothing is cut or wrapped."""

GAP = 2
"""Blanks between columns."""
FLEXIBLE = 24
"""The width of a flexible column below which other columns are left out."""

_STYLES = {state.value: colour for state, colour in COLOURS.items()} | {
    "ALIVE": COLOURS[TaskState.SUCCEEDED],
    "NOT_CONNECTED": COLOURS[TaskState.PENDING],
    "NOT_READY": COLOURS[TaskState.FAILED],
    "UNREACHABLE": COLOURS[TaskState.PENDING],
    "LOST": COLOURS[TaskState.FAILED],
    "REMOVED": COLOURS[TaskState.KILLED],
    "ACTIVE": COLOURS[TaskState.SUCCEEDED],
    "PAUSED": COLOURS[TaskState.PENDING],
    "TRIPPED": COLOURS[TaskState.FAILED],
    "DELETING": COLOURS[TaskState.KILLED],
    "REQUESTING": COLOURS[TaskState.PENDING],
    "BOOTING": COLOURS[TaskState.ASSIGNED],
    "INITIALIZING": COLOURS[TaskState.BUILDING],
    "READY": COLOURS[TaskState.SUCCEEDED],
    "SUSPECT": COLOURS[TaskState.PENDING],
    "CHECKING": COLOURS[TaskState.ASSIGNED],
    "RESETTING": COLOURS[TaskState.BUILDING],
    "REBOOTING": COLOURS[TaskState.BUILDING],
    "VERIFYING": COLOURS[TaskState.ASSIGNED],
    "ISOLATED": COLOURS[TaskState.FAILED],
    "HEALTHY": COLOURS[TaskState.SUCCEEDED],
    "UNHEALTHY": COLOURS[TaskState.FAILED],
    "FAILED_TO_START": COLOURS[TaskState.FAILED],
    "DEGRADED": COLOURS[TaskState.PENDING],
    "PROVISIONING": COLOURS[TaskState.ASSIGNED],
    "SCALING": COLOURS[TaskState.BUILDING],
    "DEPLOYING": COLOURS[TaskState.BUILDING],
    "DESTROYING": COLOURS[TaskState.KILLED],
    "DESTROYED": COLOURS[TaskState.KILLED],
    "GONE": COLOURS[TaskState.KILLED],
    "COMPLETE": COLOURS[TaskState.SUCCEEDED],
    "USER_STOPPED": COLOURS[TaskState.KILLED],
    "PENDING_HEALTHCHECK": COLOURS[TaskState.PENDING],
    "PENDING_RESTART": COLOURS[TaskState.PENDING],
    "RESTARTING": COLOURS[TaskState.ASSIGNED],
    "SENT": COLOURS[TaskState.SUCCEEDED],
    "WAITING": COLOURS[TaskState.PENDING],
    "STARTING": COLOURS[TaskState.ASSIGNED],
    "STOPPING": COLOURS[TaskState.KILLED],
    "CANCELLED": COLOURS[TaskState.KILLED],
    "STOPPED": COLOURS[TaskState.KILLED],
    "TIMED_OUT": COLOURS[TaskState.FAILED],
}

_OF_SIXTEEN = {
    COLOURS[TaskState.PENDING]: "yellow",
    COLOURS[TaskState.ASSIGNED]: "yellow",
    COLOURS[TaskState.BUILDING]: "magenta",
    COLOURS[TaskState.RUNNING]: "blue",
    COLOURS[TaskState.SUCCEEDED]: "green",
    COLOURS[TaskState.FAILED]: "red",
    COLOURS[TaskState.KILLED]: "bright_black",
}
"""The colours of terminals that have sixteen: the nearest to the green of success would be grey."""


def stdout() -> Console:
    return _console(stderr=False)


def stderr() -> Console:
    return _console(stderr=True)


def _console(stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else UNCUT
    console = Console(stderr=stderr, width=width, highlight=False, emoji=False, soft_wrap=False)
    console.push_render_hook(_Cleaning())
    return console


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table, and how it gives way on a narrow terminal.

    Args:
        flexible: whether it takes the width that is left.
        wraps: whether the flexible column continues on the next line, and is not cut.
        drops: columns with the highest number are left out first; 0 is never left out.
        shrinks: characters to which it may be cut; 0 if it may not be cut.
    """

    name: str
    right: bool = False
    flexible: bool = False
    wraps: bool = False
    drops: int = 0
    shrinks: int = 0


def table(
    console: Console, columns: Sequence[Column], rows: Iterable[Sequence[Text | str]]
) -> Table:
    """Rows under a heading; without a terminal each row is shown whole, on one line."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [
        max([len(column.name), *(row[index].cell_len for row in cells)])
        for index, column in enumerate(columns)
    ]
    shown = _fitting(columns, widths, console.width)
    if console.width < UNCUT:
        left = console.width - sum(widths[index] for index in shown) - GAP * (len(shown) - 1)
        for index in shown:
            if columns[index].flexible:
                widths[index] = max(widths[index] + left, len(columns[index].name))
    head = [Text(column.name, style="bold") for column in columns]
    return _Rows(
        [columns[index] for index in shown],
        [widths[index] for index in shown],
        [[row[index] for index in shown] for row in (head, *cells)],
    )


class _Rows(Table):
    """Rows in columns of known widths. Rich measures and wraps each cell of a table of its own: a
    thousand rows take it seconds."""

    def __init__(
        self, columns: Sequence[Column], widths: Sequence[int], rows: Sequence[Sequence[Text]]
    ) -> None:
        super().__init__(box=None)
        self._shown, self._widths, self._cells = columns, widths, rows

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        width = sum(self._widths) + GAP * (len(self._widths) - 1)
        return Measurement(width, width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for row in self._cells:
            cells = [
                _lines(console, cell, column, width)
                for cell, column, width in zip(row, self._shown, self._widths, strict=True)
            ]
            for line in range(max(map(len, cells))):
                parts = [cell[line] if line < len(cell) else Text() for cell in cells]
                yield from self._line(console, parts)
                yield Segment.line()

    def _line(self, console: Console, parts: Sequence[Text]) -> Iterator[Segment]:
        gap = 0
        for part, column, width in zip(parts, self._shown, self._widths, strict=True):
            blank = max(width - part.cell_len, 0)
            yield Segment(" " * (gap + (blank if column.right else 0)))
            yield from part.render(console)
            gap = GAP + (0 if column.right else blank)


def _lines(console: Console, cell: Text, column: Column, width: int) -> Sequence[Text]:
    """The lines of a cell, as they stand in its column."""
    if cell.cell_len <= width:
        return [cell]
    if column.wraps:
        return [*cell.wrap(console, width, overflow="fold")]
    cut = cell.copy()
    cut.truncate(width, overflow="ellipsis")
    return [cut]


def _fitting(columns: Sequence[Column], widths: list[int], available: int) -> list[int]:
    """The indexes of the columns that are shown; ``widths`` of shrinking columns are made to
    fit."""

    def narrowest(index: int) -> int:
        limit = FLEXIBLE if columns[index].flexible else columns[index].shrinks
        return min(widths[index], limit or widths[index])

    shown = list(range(len(columns)))
    for index in sorted(shown, key=lambda each: -columns[each].drops):
        needed = sum(narrowest(each) + GAP for each in shown)
        if columns[index].drops and needed > available:
            shown.remove(index)
    room = available - sum(narrowest(each) + GAP for each in shown)
    for index in shown:
        if columns[index].shrinks:
            widths[index] = min(widths[index], narrowest(index) + max(room, 0))
    return shown


def _cell(value: Text | str) -> Text:
    # Names and reasons are other people's text: they are no markup, and one line.
    return value if isinstance(value, Text) else Text(" ".join(plain(value).split("\n")))


class _Cleaning(RenderHook):
    """Removes characters that a terminal would obey from everything that a console prints. The
    console's own colours and movements are no text, and stay."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Cleaned(each) for each in renderables]


class _Cleaned:
    def __init__(self, renderable: ConsoleRenderable) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._renderable, options):
            if segment.control is None and not segment.text.isprintable():
                segment = segment._replace(text=printable(segment.text))
            yield segment


def status(state: str) -> Text:
    """A state in the colour that it has everywhere (source: Iris)."""
    style = _STYLES.get(state, "")
    if _has_sixteen_colours():
        style = _OF_SIXTEEN.get(style, style)
    return Text(state.lower().replace("_", " "), style=style)


@cache
def _has_sixteen_colours() -> bool:
    """Whether the terminal knows no more colours than the sixteen with names."""
    return Console(force_terminal=True).color_system == "standard"


def unbroken(text: str) -> Text:
    """Text that people copy, such as a command: the terminal may wrap it, but no line break is
    inserted."""
    return Text(plain(text), no_wrap=True, overflow="ignore")


def fields(pairs: Iterable[tuple[str, Text | str | None]]) -> RenderableType:
    """Names and values under each other; an empty value is left out."""
    shown = [(name, value) for name, value in pairs if value]
    width = max(len(name) for name, _ in shown) + GAP
    return Group(*(_field(name.ljust(width), value) for name, value in shown))


def _field(name: str, value: Text | str) -> RenderableType:
    label = Text(name, style="dim")
    if isinstance(value, Text) and value.no_wrap:
        later = Text("\n" + " " * len(name))
        lines = later.join(value.split("\n", allow_blank=True))
        return Text(no_wrap=True, overflow="ignore").append_text(label).append_text(lines)
    grid = Table.grid()
    grid.add_column(no_wrap=True, width=len(name))
    grid.add_column(overflow="fold")
    grid.add_row(label, Text(plain(value)) if isinstance(value, str) else value)
    return grid


def write(console: Console, *parts: RenderableType) -> None:
    """Show the parts under each other; without a terminal no line ends in blanks."""
    if console.is_terminal:
        for part in parts:
            console.print(part, crop=isinstance(part, Table))  # ``unbroken`` text may be wider
        return
    with console.capture() as captured:
        console.print(*parts, sep="\n")
    lines = captured.get().splitlines()
    console.file.write("".join(f"{line.rstrip()}\n" for line in lines))


def show_listing(
    found: "Sequence[V]",
    columns: Sequence[Column],
    row: "Callable[[V], Sequence[Text | str]]",
    *,
    as_json: bool,
    limit: int | None = None,
) -> None:
    """Show a command's list: a line for each item under a heading, or JSON.

    Args:
        limit: how many are shown, of which one more was asked for (``tell_left_out``).
    """
    shown = found if limit is None else found[:limit]
    if as_json:
        print_json(shown)
    else:
        console = stdout()
        write(console, table(console, columns, map(row, shown)))
    if limit is not None:
        tell_left_out(found, limit)


def tell_left_out(found: Sequence[object], limit: int) -> None:
    """Say that a listing does not show all, if one more than its limit was found."""
    if len(found) > limit:
        stderr().print(Text(f"older ones are left out: --limit {limit * 10} shows more"))


def show_change(changed: "View", said: str, *, as_json: bool) -> None:
    """Show a command's change: a sentence, or JSON."""
    if as_json:
        print_json(changed)
    else:
        sys.stdout.write(f"{plain(said)}\n")
