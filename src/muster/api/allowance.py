"""Limits on things under way at a time, for each owner and in all, so that no owner shuts out all
others."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from muster.core.errors import Busy
from muster.core.owner import Owner


class Allowance:
    """Counts things under way.

    Args:
        things: their name in the plural, as in "too many THINGS".
        of_one: the limit for each owner.
        in_all: the limit for all owners together.
    """

    def __init__(self, things: str, of_one: int, in_all: int) -> None:
        self._things = things
        self._of_one = of_one
        self._in_all = in_all
        self._count: Counter[Owner] = Counter()

    @contextmanager
    def used(self, owner: Owner, things: int = 1) -> Iterator[None]:
        """Count so many more things of the owner's, for as long as the context lasts.

        Raises:
            Busy: too many already, in all or of this owner.
        """
        if self._count[owner] + things > self._of_one:
            raise Busy(f"{self._of_one} {self._things} of yours are under way: end one of them")
        if self._count.total() + things > self._in_all:
            raise Busy(f"too many {self._things} are under way; try again later")
        self._count[owner] += things
        try:
            yield
        finally:
            self._count[owner] -= things
            if not self._count[owner]:
                del self._count[owner]

    def of(self, owner: Owner) -> int:
        """How many things of the owner's are under way."""
        return self._count[owner]


class ConcurrencyLimit:
    """Limits how many things of each owner's are carried out at once; the owner's others wait for
    these, and nobody else's do.

    Args:
        allowance: for things that are carried out or wait.
        at_once: how many of each owner's are carried out.
    """

    def __init__(self, allowance: Allowance, at_once: int) -> None:
        self._allowance = allowance
        self._at_once = at_once
        self._slots: dict[Owner, asyncio.Semaphore] = {}

    @contextmanager
    def admitted(self, owner: Owner) -> Iterator[asyncio.Semaphore]:
        """A semaphore to hold while one thing of the owner's is carried out.

        Raises:
            Busy: too many are under way already, in all or of this owner.
        """
        with self._allowance.used(owner):
            slots = self._slots.setdefault(owner, asyncio.Semaphore(self._at_once))
            try:
                yield slots
            finally:
                if self._allowance.of(owner) == 1:  # the last
                    del self._slots[owner]
