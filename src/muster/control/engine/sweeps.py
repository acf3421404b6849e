"""The sweep: once a minute handlers look at every record, even if no hint named it (design:
Level-triggered), and each module does its periodic work.

In each wake at most one module sweeps, so that it is known whose sweep raised, or made changes that
cannot be stored. Nothing of such a wake is committed: it is taken again without the sweep, which
rests for a while.
"""

from collections import deque
from collections.abc import Sequence

from muster.control.engine.defects import Defects
from muster.control.engine.module import Module, with_own
from muster.control.engine.work import Work

SWEEP_S = 60.0


class Sweeps:
    """When to sweep, and whose turn it is. ``due_at`` is the moment of the next sweep."""

    def __init__(self, modules: Sequence[Module], defects: Defects, now: float) -> None:
        sweeping = with_own(modules, Module.sweep)
        self._modules = {f"the sweep of {type(each).__name__}": each for each in sweeping}
        self._defects = defects
        self._swept_at = dict.fromkeys(self._modules, now - SWEEP_S)
        self._waiting: deque[str] = deque()
        self._in_this_wake: str | None = None
        self._first: str | None = None  # whose turn comes before the others'
        self.due_at = now

    @property
    def is_under_way(self) -> bool:
        """Whether modules wait for their turn, which they have in the next wakes."""
        return bool(self._waiting)

    def bring_forward(self, to: float) -> None:
        """Have the next sweep at this moment, if it is later."""
        self.due_at = min(self.due_at, to)

    def run(self, work: Work) -> None:
        """Do this wake's part of the sweep, before anything else in the wake.

        Raises:
            Undone: the sweep of a module failed.
        """
        if work.now >= self.due_at:
            self.due_at = work.now + SWEEP_S
            self._waiting = deque(sorted(self._modules, key=lambda name: name != self._first))
            self._first = None
            for record in work.live.swept():
                work.mark(record)
        self._in_this_wake = None
        while self._waiting:
            name = self._waiting.popleft()
            if self._defects.rests(name, work.now):
                continue
            self._in_this_wake = name
            try:
                self._modules[name].sweep(work, since=self._swept_at[name])
            except Exception as error:
                raise self._defects.rest(name, error, work.now) from error
            break

    def committed(self, now: float) -> None:
        if self._in_this_wake is not None:
            self._swept_at[self._in_this_wake] = now

    def take_again(self) -> None:
        """Have the next sweep begin with the module whose turn this wake was."""
        self._first = self._in_this_wake

    def blame(self, error: Exception, now: float) -> bool:
        """Have the sweep rest that made the wake fail at its commit; whether there was one."""
        if self._in_this_wake is None:
            return False
        self._defects.rest(self._in_this_wake, error, now)
        return True
