"""So many of one thing at a time, for each owner and in all: nobody shuts out all others."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from muster.core.errors import Busy
from muster.core.owner import Owner


class Allowance:
    """Counts what is under way.

    Args:
        what: in the plural, as in "too many WHAT".
        of_one: of each owner at a time.
        in_all: of all of them.
    """

    def __init__(self, what: str, of_one: int, in_all: int) -> None:
        self._what = what
        self._of_one = of_one
        self._in_all = in_all
        self._count: Counter[Owner] = Counter()

    @contextmanager
    def used(self, owner: Owner) -> Iterator[None]:
        """One more, for as long as this lasts.

        Raises:
            Busy: too many already, in all or of this owner.
        """
        if self._count[owner] >= self._of_one:
            raise Busy(f"{self._of_one} {self._what} of yours are under way: end one of them")
        if self._count.total() >= self._in_all:
            raise Busy(f"too many {self._what} are under way; try again later")
        self._count[owner] += 1
        try:
            yield
        finally:
            self._count[owner] -= 1
            if not self._count[owner]:
                del self._count[owner]

    def of(self, owner: Owner) -> int:
        """How many of the owner's are under way."""
        return self._count[owner]


class Turns:
    """Of each owner's, so many are carried out at once; the owner's others wait for those, and
    nobody else does.

    Args:
        allowance: of those that are carried out or wait.
        at_once: of each owner.
    """

    def __init__(self, allowance: Allowance, at_once: int) -> None:
        self._allowance = allowance
        self._at_once = at_once
        self._turns: dict[Owner, asyncio.Semaphore] = {}

    @contextmanager
    def admitted(self, owner: Owner) -> Iterator[asyncio.Semaphore]:
        """What is to be held while one of the owner's is carried out.

        Raises:
            Busy: too many are under way already, in all or of this owner.
        """
        with self._allowance.used(owner):
            turn = self._turns.setdefault(owner, asyncio.Semaphore(self._at_once))
            try:
                yield turn
            finally:
                if self._allowance.of(owner) == 1:  # the last
                    del self._turns[owner]
