"""Output of commands as a test reads it: as lines of text, on a terminal of some width."""

import io
from collections.abc import Sequence

from rich.console import Console, RenderableType

from muster.cli.screen import write


def shown(parts: Sequence[RenderableType], width: int | None = None) -> list[str]:
    """The lines on a terminal of that width, without colours; without one when it is None."""
    stream = io.StringIO()
    terminal = width is not None
    console = Console(
        file=stream, width=width or 100_000, force_terminal=terminal, color_system=None
    )
    write(console, *parts)
    return stream.getvalue().splitlines()


def wide() -> Console:
    return Console(file=io.StringIO(), width=100_000)


def narrow(width: int) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=True)
