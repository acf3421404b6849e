"""The registry of bugs that tests put into the product, or the world, each for an invariant."""

from collections.abc import Callable

import pytest
from proving.swarm.judge import Invariant

Break = Callable[[pytest.MonkeyPatch], None]
BUGS: list[tuple[type[Invariant], Break, int]] = []
"""Each invariant with a bug that it finds, and the first seed with which it is looked for."""


def finds(*invariants: type[Invariant], first: int = 0) -> Callable[[Break], Break]:
    """Note that each of these invariants finds the bug that the decorated function makes.

    Args:
        first: the seed to begin with, where earlier ones are known to show nothing.
    """

    def note(bug: Break) -> Break:
        BUGS.extend((each, bug, first) for each in invariants)
        return bug

    return note
