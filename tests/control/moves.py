"""Every change of a status, observed when it is made: who has the record move."""

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import pytest

from muster.control.engine import work
from muster.control.engine.lifecycle import Lifecycle
from muster.store import unit
from muster.store.entity import Record
from muster.store.unit import Unit

Line: TypeAlias = tuple[str, int]
"""A file, and a line in it."""

_ON_THE_WAY = {unit.__file__, work.__file__}
"""The files whose functions hand a change on."""
_OF_A_LIFECYCLE = Lifecycle.move_one.__code__


def with_lifecycle() -> frozenset[type]:
    """The classes of the records whose entity has a lifecycle, of product and toys."""
    return frozenset(kind.entity for kind in Lifecycle.__subclasses__())


@dataclass(slots=True)
class Moves:
    """``lines`` are those that had a status changed, by a lifecycle or by themselves; ``beside``
    are the changes that the entity's lifecycle should have made."""

    lines: set[Line] = field(default_factory=set)
    beside: list[str] = field(default_factory=list)

    def note(self, record: Record, to: StrEnum, by: FrameType, led: Collection[type]) -> None:
        if type(record) in led and by.f_code is not _OF_A_LIFECYCLE:
            where = f"{Path(by.f_code.co_filename).name}:{by.f_lineno}"
            self.beside.append(f"{type(record).__name__} to {to} at {where}")
        frame: FrameType | None = by
        for _ in range(3):  # ``move_one`` and ``move`` of a lifecycle, and whoever asked it
            if frame is not None:
                self.lines.add((frame.f_code.co_filename, frame.f_lineno))
                frame = frame.f_back


@contextmanager
def observed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Moves]:
    """The changes of statuses that are made meanwhile, through whatever names they are asked
    for."""
    moves, led, move = Moves(), with_lifecycle(), Unit.move

    def noting(
        self: Unit, record: Record, expected: Collection[str], to: StrEnum, *why: Any, **more: Any
    ) -> bool:
        by: FrameType | None = sys._getframe(1)
        while by is not None and by.f_code.co_filename in _ON_THE_WAY:
            by = by.f_back
        assert by is not None
        moves.note(record, to, by, led)
        return move(self, record, expected, to, *why, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Unit, "move", noting)
        yield moves
