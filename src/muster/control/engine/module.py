"""What an entity brings to the control plane (design: What an entity is): its folder exports one
module."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from muster.control.engine.effects import Performer
from muster.control.engine.handler import Handler
from muster.control.engine.lifecycle import Lifecycle
from muster.control.engine.work import Work
from muster.core.clock import Clock
from muster.scheduling.fairness import Stay
from muster.store.entity import Entity
from muster.store.store import Store
from muster.store.unit import LedgerWatch

S = TypeVar("S")


class Parts:
    """What modules offer to each other and to requests, by its class.

    Made anew whenever the mirror is read: nobody keeps a part beyond the wake.
    """

    def __init__(self) -> None:
        self._parts: dict[type, Any] = {}

    def add(self, part: object) -> None:
        self._parts[type(part)] = part

    def __getitem__(self, kind: type[S]) -> S:
        """The part of this class.

        Raises:
            KeyError: no module offers it; or the one that does comes later.
        """
        return cast(S, self._parts[kind])


@dataclass(frozen=True, slots=True)
class Context:
    """What a module may use: the store with its mirror, the clock, and what modules before it
    offer."""

    store: Store
    clock: Clock
    parts: Parts

    def past(self, group: str, span_s: float) -> list[Stay]:
        """What has run in a group in the last so many seconds, and has ended."""
        return self.store.stays(group, self.clock.now() - span_s)


@dataclass(frozen=True, slots=True)
class Declared:
    """What a module declares over a mirror that was just read.

    ``offers`` are parts for other modules and for requests; ``watch`` is told of each change of the
    ledger, where the module keeps account of it.
    """

    lifecycles: Sequence[Lifecycle[Any]] = ()
    handlers: Sequence[Handler[Any]] = ()
    offers: Sequence[object] = ()
    watch: LedgerWatch | None = None


class Module:
    """One for each entity; it lives as long as the control plane.

    ``entities`` are declared in its folder (others in ``store.entities``), and have to be told to
    the store; ``performers`` carry out its effects.
    """

    entities: Sequence[Entity[Any]] = ()
    performers: Sequence[Performer[Any]] = ()

    def begin(self) -> None:
        """Complete what was read of the mirror with what is not stored. Called for all modules
        whenever it was read, before the first declares."""

    def declare(self, context: Context) -> Declared:
        """Derive from the mirror whatever the module derives. Called whenever it was read."""
        return Declared()

    def catch_up(self) -> None:
        """Take note in the mirror of what came in outside of wakes (heartbeats); nothing of it is
        decided here."""

    def sweep(self, work: Work, since: float) -> None:
        """What is to be done now and then, whatever happens; ``since`` is when it was last."""

    def committed(self, work: Work) -> None:
        """Called after each commit, before its effects are performed."""
